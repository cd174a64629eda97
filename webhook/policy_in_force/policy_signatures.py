"""Signatures of policy documents: Ed25519 over the document's bytes, by any of the keys in a file.

Sources verify a document before anybody receives it: from the ConfigMap, a file, the last good policy, a revision, or
a request to store one. Copies of a document keep its signature, and are verified again by it.
"""

import base64
import binascii
import re
from collections import OrderedDict
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from webhook.core.document.loading import compute_hash
from webhook.core.plain_text import quote_value
from webhook.errors import SignatureError, UserError
from webhook.support.input_files import read_content
from webhook.support.watched_file import read_regular

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_KEYS_BYTES_MAX = 1 << 16
_SIGNATURE_BYTES = 64
_REMEMBERED_MAX = 100
_SHOWN_CHARACTERS = 16
_PUBLIC = "write a PEM block BEGIN PUBLIC KEY for each key: openssl pkey -in PRIVATE.pem -pubout"
_SIGN = "podgate policy sign FILE --key PRIVATE.pem prints a signature"


class PolicySignatures:
    """A `ports.DocumentSignatures`. Without `keys_file` every document is accepted, and its signature only kept.

    The file is read for each document, so that a change of the keys holds for the next one. UserError: its content
    is no keys.
    """

    def __init__(self, keys_file: Path | None = None) -> None:
        self._keys_file = keys_file
        self._remembered: OrderedDict[str, str] = OrderedDict()
        """Signatures of accepted documents, by hash."""
        if keys_file is not None:
            parse_public_keys(read_content(keys_file, "give the file of the public keys"), str(keys_file))

    @property
    def is_required(self) -> bool:
        return self._keys_file is not None

    def verify(self, document: bytes, signature: str | None, place: str) -> None:
        text = None if signature is None else signature.strip()
        if self._keys_file is not None:
            self._check(self._keys_file, document, text, place)
        if text:
            self._remember(compute_hash(document), text)

    def find(self, document: bytes) -> str | None:
        return self._remembered.get(compute_hash(document))

    def _check(self, keys_file: Path, document: bytes, text: str | None, place: str) -> None:
        if not text:
            raise SignatureError(
                f"{place} is missing: the policy is not signed, and --policy-keys {keys_file} asks for it", _SIGN
            )
        shown = quote_value(text[:_SHOWN_CHARACTERS])
        decoded = _decode(text)
        if decoded is None:
            raise SignatureError(f"{place}: {shown}: not an Ed25519 signature, 64 bytes in base64", _SIGN)
        try:
            keys = parse_public_keys(read_regular(keys_file, _KEYS_BYTES_MAX), str(keys_file))
        except OSError as error:
            raise SignatureError(f"--policy-keys {keys_file}: {error.strerror or error}", _PUBLIC) from None
        except UserError as error:
            raise SignatureError(f"--policy-keys {error}", error.remedy) from None
        if not any(_is_valid(key, decoded, document) for key in keys):
            raise SignatureError(
                f"{place}: {shown}: not made for this document (hash {compute_hash(document)}) by any of the"
                f" {len(keys)} keys of --policy-keys {keys_file}",
                "sign this document with the private key of one, or add the public key there",
            )

    def _remember(self, policy_hash: str, text: str) -> None:
        self._remembered[policy_hash] = text
        self._remembered.move_to_end(policy_hash)
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def _decode(text: str) -> bytes | None:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if len(decoded) == _SIGNATURE_BYTES else None


def _is_valid(key: Ed25519PublicKey, signature: bytes, document: bytes) -> bool:
    try:
        key.verify(signature, document)
    except InvalidSignature:
        return False
    return True


def parse_public_keys(pem: bytes, name: str) -> tuple[Ed25519PublicKey, ...]:
    """Return the public keys in PEM. UserError names the first block that is none."""
    keys = []
    for number, block in enumerate(_BLOCK.finditer(pem), start=1):
        kind = block[1].decode()
        if "PRIVATE" in kind:
            raise UserError(f"{name}: key {number}: a private key, which signs policies, does not belong here", _PUBLIC)
        try:
            key = load_pem_public_key(block[0])
        except (ValueError, UnsupportedAlgorithm):
            raise UserError(f"{name}: key {number}: {kind}: not a public key in PEM", _PUBLIC) from None
        if not isinstance(key, Ed25519PublicKey):
            raise UserError(f"{name}: key {number}: not an Ed25519 key", "openssl genpkey -algorithm ed25519 makes one")
        keys.append(key)
    if not keys:
        raise UserError(f"{name}: no key in it", _PUBLIC)
    return tuple(keys)


def sign_document(document: bytes, pem: bytes, name: str) -> str:
    """Return the signature by a private key in PEM. UserError: it is none."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        raise UserError(f"{name}: the key is encrypted", "decrypt it: openssl pkey -in FILE") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(
            f"{name}: not a private key in PEM", "openssl genpkey -algorithm ed25519 -out PRIVATE.pem makes one"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UserError(f"{name}: not an Ed25519 key", "openssl genpkey -algorithm ed25519 -out PRIVATE.pem makes one")
    return base64.b64encode(key.sign(document)).decode()
