"""TLS: contexts for the server, a handshake probe, and the published CA bundle."""
