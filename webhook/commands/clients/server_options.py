"""Options of a remote server: its URL, and the client's credentials."""

from pathlib import Path
from typing import NamedTuple


class ServerOptions(NamedTuple):
    """A server's URL, and the client's files; None for a file that is not given."""

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    tls_name: str | None = None
