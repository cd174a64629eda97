"""`podgate token`: JWTs for callers without an issuer of their own, and the key set that verifies them."""

from webhook.cli.token.group import token

__all__ = ["token"]
