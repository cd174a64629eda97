"""Certificates and tokens: a CA, leaf certificates, signing keys and their rotation. Independent of `webhook`.

The names below are the public interface for the commands; the controller uses `certs.cluster` as well.
"""

from certs.authority import CA_LIFETIME, LEAF_LIFETIME, Authority, server_names
from certs.ca_folder import CaFolder
from certs.errors import CertsError
from certs.files import (
    folder_lock,
    read,
    read_certificates,
    read_private_key,
    refuse_existing,
    write,
    write_key_pair,
)
from certs.inspection import Description, describe, signed_by
from certs.issuance import IssueRequest, issue
from certs.lifetimes import Lifetimes
from certs.server_folder import ServerFolder, TokenClaims
from certs.token_folder import TokenFolder
from certs.token_issuer import (
    ALGORITHMS,
    RSA_ALGORITHMS,
    PrivateKey,
    PublicKey,
    algorithm_of,
    certificate_binding,
    key_pem,
    key_set,
    new_key,
    public_jwk,
    public_key_of,
    sign,
)
from certs.token_rotation import Issuer

__all__ = [
    "ALGORITHMS",
    "CA_LIFETIME",
    "LEAF_LIFETIME",
    "RSA_ALGORITHMS",
    "Authority",
    "CaFolder",
    "CertsError",
    "Description",
    "IssueRequest",
    "Issuer",
    "Lifetimes",
    "PrivateKey",
    "PublicKey",
    "ServerFolder",
    "TokenClaims",
    "TokenFolder",
    "algorithm_of",
    "certificate_binding",
    "describe",
    "folder_lock",
    "issue",
    "key_pem",
    "key_set",
    "new_key",
    "public_jwk",
    "public_key_of",
    "read",
    "read_certificates",
    "read_private_key",
    "refuse_existing",
    "server_names",
    "sign",
    "signed_by",
    "write",
    "write_key_pair",
]
