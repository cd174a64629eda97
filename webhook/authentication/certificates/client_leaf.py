"""What a client's own certificate must be, whoever shows it: the client in its handshake, or a proxy in a header."""

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.authentication.certificates.client_ca import extension
from webhook.authentication.certificates.weak_rsa_keys import weakness


def fault_of_leaf(leaf: x509.Certificate) -> str | None:
    """Return why it is no client's, None where it is one; what cannot be read raises one of UNREADABLE.

    The rules for the web ask for more, such as names and identifiers, that a private CA need not give.
    """
    constraints, usage = extension(leaf, x509.BasicConstraints), extension(leaf, x509.KeyUsage)
    purposes = extension(leaf, x509.ExtendedKeyUsage)
    if constraints is not None and constraints.ca:
        return "a CA is no client (basic constraints CA:TRUE)"
    if usage is not None and not usage.digital_signature:
        return "not made to sign with (no key usage digitalSignature)"
    if purposes is None or ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
        return "not made for a client (no extended key usage clientAuth)"
    return weakness(leaf.public_key())
