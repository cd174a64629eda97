"""CA rotation in a folder of files, for use without the controller: ca.crt, ca.key, and leaves beside them.

`ca.crt` is the bundle that servers and clients trust; the first certificate in it is the CA that signs, and `ca.key` is
its key, as `podgate certs issue` expects. The state of the rotation, with the keys of later CAs, is in `rotation.json`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import ca_generations
from certs.authority import Authority, may_sign
from certs.ca_generations import Generation, Generations, find_issuer
from certs.errors import CertsError
from certs.files import read, read_certificates, read_key_pair, read_private_key, write
from certs.lifetimes import Lifetimes
from certs.rotation import Adopt, Drop, Issue, Leaf, Make, MarkPublished, Publish, RotationState, Step, find_due_steps
from certs.token_issuer import encode_key

CA, CA_KEY, MEMORY = "ca.crt", "ca.key", "rotation.json"
_STEPS_MAX = 100


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change of a file, made or (dry run) due."""

    file: str
    text: str


class CaFolder:
    """A folder, read once; `is_dry` writes nothing."""

    def __init__(self, path: Path, lifetimes: Lifetimes, *, is_dry: bool = False) -> None:
        self._path = path
        self._lifetimes = lifetimes
        self._is_dry = is_dry
        self._generations = self._read_generations()
        self._trusted = read_certificates(path / CA)
        self._leaves = dict(self._read_leaves())

    def rotate(self, now: datetime) -> Iterator[FileChange]:
        """Make all changes that are due, and yield them. An interrupted rotation continues at the next call."""
        for _ in range(_STEPS_MAX):
            steps = find_due_steps(self._build_state(), self._lifetimes, now)
            if not steps:
                break
            yield self._take(steps[0], now)
        self._publish()  # the order may differ too: another CA may sign now

    def list_foreign_leaves(self) -> Iterator[str]:
        """Yield the names of certificates that no CA of this folder has signed."""
        cas = [*(generation.certificate for generation in self._generations), *self._trusted]
        for name, leaf in self._leaves.items():
            if leaf.certificate is not None and find_issuer(leaf.certificate, cas) is None:
                yield name

    # --- state ---

    def _read_generations(self) -> Generations:
        memory = self._path / MEMORY
        if memory.exists():
            return ca_generations.decode(read(memory), str(memory))
        found = Authority.from_key_pair(read_key_pair(self._path / CA, self._path / CA_KEY)).key_pair
        others = dict.fromkeys(ca for ca in read_certificates(self._path / CA) if ca != found.certificate)
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
                yield path.name, Leaf(certificate, _is_key_of(key, certificate))

    def _build_state(self) -> RotationState:
        cas = [*(generation.certificate for generation in self._generations), *self._trusted]
        ours = {
            name: leaf
            for name, leaf in self._leaves.items()
            if leaf.certificate is not None and find_issuer(leaf.certificate, cas) is not None
        }
        return RotationState(self._generations, {CA: (frozenset(self._trusted),)}, ours)

    # --- steps ---

    def _take(self, step: Step, now: datetime) -> FileChange:
        match step:
            case Make():
                made = Authority.create("podgate-ca", self._lifetimes.ca, now).key_pair
                self._save((*self._generations, Generation(made.certificate, made.key)))
                return FileChange(MEMORY, f"made {_format_name(made.certificate)}")
            case Adopt(certificate, ends):
                self._save((Generation(certificate, None, now, ends), *self._generations))
                return FileChange(MEMORY, f"adopted {_format_name(certificate)}: it has signed a leaf in use")
            case Publish():
                self._publish()
                return FileChange(CA, f"holds {len(self._generations)} CA(s) now: distribute it to servers and clients")
            case MarkPublished(generation, at):
                self._save(
                    ca_generations.replace_generation(
                        self._generations, generation, replace(generation, published_at=at)
                    )
                )
                text = f"is no longer in {CA}"
                if at is not None:
                    text = f"is in {CA}, and signs from {at + self._lifetimes.settle:%Y-%m-%dT%H:%M:%SZ} on"
                return FileChange(MEMORY, f"{_format_name(generation.certificate)} {text}")
            case Issue(name, signer, reason):
                return self._issue(name, signer, reason, now)
            case Drop(generation):
                self._save(ca_generations.replace_generation(self._generations, generation, None))
                return FileChange(
                    MEMORY, f"dropped {_format_name(generation.certificate)}: all that it signed has expired"
                )

    def _issue(self, name: str, signer: Generation, reason: str, now: datetime) -> FileChange:
        former = self._leaves[name].certificate
        if former is None:
            raise LookupError("only an existing leaf is renewed")
        issued = signer.build_authority().renew(former, self._lifetimes.leaf, now)
        generations = ca_generations.record_signing(self._generations, signer, issued.certificate)
        # Other leaves that it signed may be in use elsewhere: it stays trusted until it expires.
        at = self._generations.index(signer)
        self._save(
            (
                *generations[:at],
                replace(generations[at], leaves_end=signer.certificate.not_valid_after_utc),
                *generations[at + 1 :],
            )
        )
        self._write(str(Path(name).with_suffix(".key")), encode_key(issued.key), secret=True)
        self._write(name, ca_generations.encode_pem(issued.certificate))
        self._leaves[name] = Leaf(issued.certificate)
        ends = f"{issued.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        return FileChange(name, f"renewed, until {ends}, by {_format_name(signer.certificate)}: {reason}")

    def _save(self, generations: Generations) -> None:
        self._write(MEMORY, ca_generations.encode(generations), secret=True)
        self._generations = generations

    def _publish(self) -> None:
        """Write the bundle and the CA key if they differ, key first."""
        signer = next(
            generation
            for generation in reversed(self._generations)
            if generation.is_signing or generation is self._generations[0]
        )
        others = [generation.certificate for generation in reversed(self._generations) if generation is not signer]
        wanted = [signer.certificate, *others]
        if signer.key is not None and not _is_key_of(self._path / CA_KEY, signer.certificate):
            self._write(CA_KEY, encode_key(signer.key), secret=True)
        if wanted != self._trusted:
            self._write(CA, ca_generations.encode_pem(*wanted))
            self._trusted = wanted

    def _write(self, name: str, content: bytes, *, secret: bool = False) -> None:
        if not self._is_dry:
            write(self._path / name, content, secret=secret, replace=True)


def _is_key_of(key: Path, certificate: x509.Certificate) -> bool:
    try:
        private = read_private_key(key)
    except CertsError:
        return False
    return isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == certificate.public_key()


def _format_name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
