"""`podgate certs`: a CA, and serving and client certificates, as files or in a cluster."""

from webhook.cli.certs.group import certs

__all__ = ["certs"]
