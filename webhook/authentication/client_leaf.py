"""Requirements on a client's leaf certificate, whether from its handshake or from a proxy's header."""

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.authentication.certificates.weak_rsa_keys import find_weakness
from webhook.authentication.client_ca import find_extension


def find_leaf_fault(leaf: x509.Certificate) -> str | None:
    """Return why a certificate is not a client's, None if it is one; raises one of UNREADABLE.

    The rules of the web PKI, such as required names and key identifiers, do not apply to a private CA.
    """
    constraints, usage = find_extension(leaf, x509.BasicConstraints), find_extension(leaf, x509.KeyUsage)
    purposes = find_extension(leaf, x509.ExtendedKeyUsage)
    if constraints is not None and constraints.ca:
        return "a CA is no client (basic constraints CA:TRUE)"
    if usage is not None and not usage.digital_signature:
        return "not made to sign with (no key usage digitalSignature)"
    if purposes is None or ExtendedKeyUsageOID.CLIENT_AUTH not in purposes:
        return "not made for a client (no extended key usage clientAuth)"
    return find_weakness(leaf.public_key())
