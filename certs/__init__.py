"""Certificates and tokens: a CA, leaf certificates, signing keys and their rotation. Independent of `webhook`.

The names below are the public interface for the commands; the controller uses `certs.cluster` as well.
"""

from certs.authority import CA_LIFETIME, LEAF_LIFETIME, Authority, list_server_names
from certs.ca_folder import CaFolder
from certs.errors import CertsError
from certs.files import (
    lock_folder,
    read,
    read_certificates,
    read_private_key,
    refuse_existing,
    write,
    write_key_pair,
)
from certs.inspection import Description, describe, is_signed_by
from certs.issuance import IssueRequest, issue
from certs.lifetimes import Lifetimes
from certs.server_folder import ServerFolder, TokenClaims
from certs.token_folder import TokenFolder
from certs.token_issuer import (
    ALGORITHMS,
    RSA_ALGORITHMS,
    PrivateKey,
    PublicKey,
    build_binding,
    build_jwk,
    choose_algorithm,
    encode_key,
    format_key_set,
    new_key,
    parse_public_key,
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
    "build_binding",
    "build_jwk",
    "choose_algorithm",
    "describe",
    "encode_key",
    "format_key_set",
    "is_signed_by",
    "issue",
    "list_server_names",
    "lock_folder",
    "new_key",
    "parse_public_key",
    "read",
    "read_certificates",
    "read_private_key",
    "refuse_existing",
    "sign",
    "write",
    "write_key_pair",
]
