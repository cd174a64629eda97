"""Client certificates: chains, client CAs, the identity in a certificate, rechecks, and forwarded certificates."""
