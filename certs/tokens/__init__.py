"""JWTs for callers without an issuer of their own: the issuer, its signing keys, and their rotation."""
