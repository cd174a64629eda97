"""TLS contexts that a library makes when it is imported: without the CAs of the system."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PATHS = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""OpenSSL looks for the default CAs there; https://docs.openssl.org/3.0/man3/SSL_CTX_load_verify_locations/."""


@contextmanager
def without_default_cas() -> Iterator[None]:
    """Let OpenSSL find no default CAs within the block.

    aiohttp makes two contexts when it is imported, for clients that give none, and loads all CAs of the system twice.
    Each client of Podgate gives a context, so that a start need not wait for that.
    """
    before = {name: os.environ.get(name) for name in _PATHS}
    os.environ.update(dict.fromkeys(_PATHS, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
