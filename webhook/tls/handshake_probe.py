"""A TLS handshake in memory: whether a context works, before anybody depends on it."""

import ssl


def probe_handshake(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bytes:
    """Go to where the client has seen the certificate and a signature made with its key; return the former, DER.

    ssl.SSLError where they do not come so far. What the client would answer is not looked at.
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
        raise ssl.SSLError("no certificate was shown")
    return presented


def trusting_client() -> ssl.SSLContext:
    """Return the context of a client that believes everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def client_trusting(authorities_pem: str) -> ssl.SSLContext:
    """Return that of a client that believes whom these vouch for, whatever name it has; ssl.SSLError, ValueError.

    As in the API server, any of them may end a chain, one that another signed too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities_pem)
    return context


def reason_of(error: Exception) -> str:
    """Say what went wrong, in words instead of OpenSSL's constants."""
    found = (getattr(error, name, None) for name in ("verify_message", "reason", "strerror"))
    return next((text for text in found if text), str(error)).lower().replace("_", " ")
