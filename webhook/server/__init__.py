"""HTTPS server: listener, HTTP/1.1, admission endpoints, and the health port."""
