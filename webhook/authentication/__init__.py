"""Authentication of callers: a client certificate and a JWT that agree on one configured identity."""
