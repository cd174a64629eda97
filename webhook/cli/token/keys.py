"""Keys in files, and the algorithm that each signs with."""

from pathlib import Path
from typing import cast

from certs import CertsError, PrivateKey, algorithm_of, public_key_of, read, read_private_key
from webhook.errors import UserError


def read_public_key(path: Path) -> object:
    """Return the public half of the private key, public key or certificate in a PEM file."""
    pem = read(path)
    if b"PRIVATE KEY" in pem:
        return cast("PrivateKey", read_private_key(path)).public_key()
    try:
        return public_key_of(pem)
    except ValueError:
        raise UserError(f"{path}: holds no key in PEM", "give a private key, a public key or a certificate") from None


def algorithm_of_file(path: Path, key: object, wanted: str | None = None) -> str:
    """Return the algorithm of the key in a file; UserError if it is not `wanted`."""
    try:
        return algorithm_of(key, wanted)
    except CertsError as error:
        raise UserError(f"{path}: {error}", error.remedy) from None
