"""Serving certificate of a server outside the cluster, as it presents it in a TLS handshake."""

import socket
import ssl
from urllib.parse import urlsplit

_CONNECT_SECONDS = 5
_READ_BYTES = 65_536


def presented_at(url: str) -> bytes:
    """Return the certificate, DER; OSError.

    The client leaves without a reply: one without a certificate of its own is a refused call, for which there is an
    alert.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    received, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(received, to_server)
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_CONNECT_SECONDS) as connection:
        while (certificate := _presented(client)) is None:
            connection.sendall(to_server.read())
            if not (data := connection.recv(_READ_BYTES)):
                raise ConnectionResetError("the server ended the handshake")
            received.write(data)
    return certificate


def _presented(client: ssl.SSLObject) -> bytes | None:
    """Continue the handshake; return the server's certificate when it has come."""
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return None
    return client.getpeercert(binary_form=True)
