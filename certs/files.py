"""PEM files: atomic writes, keys with mode 0600, no silent replacement, and a lock per folder."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from certs.authority import KeyPair
from certs.errors import CertsError

FILE_BYTES_MAX = 64 << 20
"""Larger files are not read."""

_SECRET = 0o600
_PUBLIC = 0o644


def write_key_pair(pair: KeyPair, certificate: Path, key: Path, *, replace: bool = False) -> None:
    """Write both. The key goes first: a reader that finds a new certificate finds its key as well."""
    if not replace:
        refuse_existing(certificate, key)
    pem = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write(key, pem, secret=True, replace=replace)
    write(certificate, pair.certificate.public_bytes(Encoding.PEM), secret=False, replace=replace)


def refuse_existing(*paths: Path, remedy: str = "move it away, or choose another name or folder") -> None:
    existing = [str(path) for path in paths if os.path.lexists(path)]
    if existing:
        raise CertsError(f"{', '.join(existing)}: already exists, and would be overwritten", remedy)


def write(path: Path, content: bytes, *, secret: bool, replace: bool = False) -> None:
    """Write a file in one step; a new secret one is readable by its owner only.

    One that is replaced keeps its group and mode, a secret one without the rights of others, and where the process may
    set it its owner. A link stays: what it leads to is replaced.
    """
    path = path.resolve() if replace else path
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET if secret else _PUBLIC)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                if replace:
                    _keep_access(descriptor, path, secret=secret)
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if replace:
                draft.replace(path)
            else:
                os.link(draft, path)  # unlike a rename, it fails if the name exists
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError) and not replace:
            refuse_existing(path)
        raise CertsError(f"{path}: cannot be written: {error.strerror}", "choose a writable folder") from None


def _keep_access(descriptor: int, former: Path, *, secret: bool) -> None:
    """Give a draft the owner, group and mode of the file that it replaces: its readers must be able to read it."""
    try:
        known = former.stat()
    except FileNotFoundError:
        return
    mode = known.st_mode & (0o770 if secret else 0o777)
    with suppress(PermissionError):
        os.fchown(descriptor, known.st_uid, -1)
    try:
        os.fchown(descriptor, -1, known.st_gid)
    except PermissionError:
        if mode & 0o070:  # it would be readable by another group, and not by its own
            raise
    os.fchmod(descriptor, mode)


def read_key_pair(certificate: Path, key: Path) -> KeyPair:
    private = read_private_key(key)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise CertsError(f"{key}: not an elliptic-curve key", "give an EC key (P-256)")
    return KeyPair(read_certificates(certificate)[0], private)


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Return every certificate of a PEM file, at least one, with names and extensions that can be read."""
    try:
        found = x509.load_pem_x509_certificates(read(path))
    except ValueError:
        raise CertsError(
            f"{path}: holds no certificate in PEM", "give a file with a -----BEGIN CERTIFICATE----- block"
        ) from None
    for number, certificate in enumerate(found, 1):
        try:
            certificate.extensions  # noqa: B018  it reads them
        except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
            raise CertsError(
                f"{path}: certificate {number} in it: its extensions cannot be read: {error}",
                "issue it anew with valid extensions",
            ) from None
        try:
            certificate.subject, certificate.issuer  # noqa: B018  as above
        except (ValueError, TypeError) as error:
            raise CertsError(
                f"{path}: certificate {number} in it: its names cannot be read: {error}",
                "issue it anew with valid names",
            ) from None
    return found


def read_private_key(path: Path) -> object:
    """Return the private key of a PEM file."""
    try:
        return load_pem_private_key(read(path), password=None)
    except (ValueError, TypeError):
        raise CertsError(
            f"{path}: holds no private key in PEM without a passphrase", "give a file with a PRIVATE KEY block"
        ) from None


def read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise CertsError(f"{path}: cannot be read: {error.strerror}", "check the path and its permissions") from None
    if len(content) > FILE_BYTES_MAX:
        raise CertsError(
            f"{path}: more than {FILE_BYTES_MAX >> 20} MiB", "give the right file, or several smaller ones"
        )
    return content


@contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, shared with other processes, within the block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CertsError(f"{path}: cannot be opened: {error.strerror}", "name an existing, readable folder") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
