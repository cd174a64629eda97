"""TLS handshake in memory, to test a context before it is used."""

import ssl


def probe_handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bytes:
    """Handshake until the client has verified the signature of the server's certificate; return the certificate, DER.

    ssl.SSLError if that fails. The client's reply is not processed.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    presented = client.getpeercert(binary_form=True)
    if presented is None:
        raise ssl.SSLError("the server sent no certificate")
    return presented


def make_trusting_client() -> ssl.SSLContext:
    """Return the context of a client that trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def make_client(authorities_pem: str) -> ssl.SSLContext:
    """Return the context of a client that trusts these CAs, without checking names; ssl.SSLError, ValueError.

    As in the API server, a chain may end at any of them, including an intermediate CA.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities_pem)
    return context


def describe_error(error: Exception) -> str:
    """Return the reason of a TLS error in words instead of OpenSSL's constants."""
    found = (getattr(error, name, None) for name in ("verify_message", "reason", "strerror"))
    return next((text for text in found if text), str(error)).lower().replace("_", " ")
