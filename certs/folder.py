"""The same rotation over a folder of files, for whoever runs without the controller: ca.crt, ca.key, and leaves beside.

`ca.crt` is the bundle that both sides trust; first in it stands the CA that signs, and `ca.key` is its key, as `podgate
certs issue` wants them. What a rotation must not forget, keys to come among it, is in `rotation.json`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import ca_generations as lines
from certs.authority import Authority, Credentials, may_sign
from certs.ca_generations import Generation, Line, issuer_of
from certs.errors import CertsError
from certs.files import read, read_certificates, read_credentials, read_private_key, write
from certs.lifetimes import Lifetimes
from certs.rotation import Adopt, Drop, Issue, Leaf, Make, Mark, Publish, Step, View, due
from certs.tokens.issuer import key_pem

CA, CA_KEY, MEMORY = "ca.crt", "ca.key", "rotation.json"
_STEPS_MAX = 100
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Did:
    """One thing that was done, or would be."""

    file: str
    text: str


class Folder:
    """One folder, read once; `is_dry` writes nothing."""

    def __init__(self, path: Path, lifetimes: Lifetimes, *, is_dry: bool = False) -> None:
        self._path = path
        self._lifetimes = lifetimes
        self._is_dry = is_dry
        self._line = self._read_line()
        self._trusted = read_certificates(path / CA)
        self._leaves = dict(self._read_leaves())

    def rotate(self, now: datetime) -> Iterator[Did]:
        """Do all that is due, and yield it. Interrupted, it goes on at the next call."""
        for _ in range(_STEPS_MAX):
            steps = due(self._view(), self._lifetimes, now)
            if not steps:
                break
            yield self._take(steps[0], now)
        self._publish()  # the order in it too: another CA may sign now

    def strangers(self) -> Iterator[str]:
        """Yield the certificates that no CA of this folder has signed: they are somebody else's."""
        cas = [*(one.certificate for one in self._line), *self._trusted]
        for name, leaf in self._leaves.items():
            if leaf.certificate is not None and issuer_of(leaf.certificate, cas) is None:
                yield name

    # --- what is there ---

    def _read_line(self) -> Line:
        memory = self._path / MEMORY
        if memory.exists():
            return lines.read(read(memory), str(memory))
        found = Authority.of(read_credentials(self._path / CA, self._path / CA_KEY)).credentials
        others = dict.fromkeys(one for one in read_certificates(self._path / CA) if one != found.certificate)
        return tuple(
            Generation(ca, key, ca.not_valid_before_utc, ca.not_valid_after_utc)
            for ca, key in (*((other, None) for other in others), (found.certificate, found.key))
        )

    def _read_leaves(self) -> Iterator[tuple[str, Leaf]]:
        for path in sorted(self._path.glob("*.crt")):
            key = path.with_suffix(".key")
            if path.name == CA or not key.exists():
                continue
            certificate = read_certificates(path)[0]
            if not may_sign(certificate):
                yield path.name, Leaf(certificate, _belongs(key, certificate))

    def _view(self) -> View:
        cas = [*(one.certificate for one in self._line), *self._trusted]
        ours = {
            name: leaf
            for name, leaf in self._leaves.items()
            if leaf.certificate is not None and issuer_of(leaf.certificate, cas) is not None
        }
        return View(self._line, {CA: (frozenset(self._trusted),)}, ours)

    # --- steps ---

    def _take(self, step: Step, now: datetime) -> Did:
        match step:
            case Make():
                made = Authority.create("podgate-ca", self._lifetimes.ca, now).credentials
                self._keep((*self._line, Generation(made.certificate, made.key)))
                return Did(MEMORY, f"made {_name(made.certificate)}")
            case Adopt(certificate, ends):
                self._keep((Generation(certificate, None, now, ends), *self._line))
                return Did(MEMORY, f"adopted {_name(certificate)}: it has signed a leaf in use")
            case Publish():
                self._publish()
                return Did(CA, f"holds {len(self._line)} CA(s) now: give it to both sides")
            case Mark(one, at):
                self._keep(lines.changed(self._line, one, replace(one, published_at=at)))
                signs = f", and signs from {at + self._lifetimes.settle:%Y-%m-%dT%H:%M:%SZ} on" if at else " no more"
                return Did(MEMORY, f"{_name(one.certificate)} is in {CA}{signs}")
            case Issue(name, signer, reason):
                return self._issue(name, signer, reason, now)
            case Drop(one):
                self._keep(lines.changed(self._line, one, None))
                return Did(MEMORY, f"dropped {_name(one.certificate)}: all that it signed has expired")

    def _issue(self, name: str, signer: Generation, reason: str, now: datetime) -> Did:
        former = self._leaves[name].certificate
        if former is None:
            raise LookupError("what is renewed is there")
        issued = _like(former, signer.authority(), self._lifetimes, now)
        line = lines.signing(self._line, signer, issued.certificate)
        # What else it has signed may have been taken elsewhere: it stays trusted for as long as it lives itself.
        at = self._line.index(signer)
        self._keep((*line[:at], replace(line[at], leaves_end=signer.certificate.not_valid_after_utc), *line[at + 1 :]))
        self._write(str(Path(name).with_suffix(".key")), key_pem(issued.key), secret=True)
        self._write(name, lines.pem(issued.certificate))
        self._leaves[name] = Leaf(issued.certificate)
        ends = f"{issued.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        return Did(name, f"renewed, until {ends}, by {_name(signer.certificate)}: {reason}")

    def _keep(self, line: Line) -> None:
        self._write(MEMORY, lines.written(line), secret=True)
        self._line = line

    def _publish(self) -> None:
        """Have the bundle and its key as they must be, key first."""
        signer = next(one for one in reversed(self._line) if one.is_signing or one is self._line[0])
        others = [one.certificate for one in reversed(self._line) if one is not signer]
        wanted = [signer.certificate, *others]
        if signer.key is not None and not _belongs(self._path / CA_KEY, signer.certificate):
            self._write(CA_KEY, key_pem(signer.key), secret=True)
        if wanted != self._trusted:
            self._write(CA, lines.pem(*wanted))
            self._trusted = wanted

    def _write(self, name: str, content: bytes, *, secret: bool = False) -> None:
        if not self._is_dry:
            write(self._path / name, content, secret=secret, replace=True)


@contextmanager
def alone_in(path: Path) -> Iterator[None]:
    """Keep a second one out of the folder meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CertsError(
            f"{path}: cannot be opened: {error.strerror}", "name a folder that is there, and may be read"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _like(former: x509.Certificate, authority: Authority, lifetimes: Lifetimes, now: datetime) -> Credentials:
    """Issue a leaf of the same names and use."""
    names = _extension(former, x509.SubjectAlternativeName)
    sans = tuple(names) if names is not None else ()
    common = [str(one.value) for one in former.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    name = (*common, *(str(one.value) for one in sans), "")[0]
    usages = _extension(former, x509.ExtendedKeyUsage) or ()
    if ExtendedKeyUsageOID.SERVER_AUTH in usages:
        return authority.issue_server(name, sans, lifetimes.leaf, now)
    uris = [name.value for name in sans if isinstance(name, x509.UniformResourceIdentifier)]
    return authority.issue_client(name, uris[0] if uris else None, lifetimes.leaf, now)


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _belongs(key: Path, certificate: x509.Certificate) -> bool:
    try:
        private = read_private_key(key)
    except CertsError:
        return False
    return isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == certificate.public_key()


def _name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
