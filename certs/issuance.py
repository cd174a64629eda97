"""Issuance into a folder: server and client certificates from one CA, which is created on first use."""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import CA_LIFETIME, LEAF_LIFETIME, Authority, KeyPair, check_uri, list_server_names, parse_san
from certs.errors import CertsError
from certs.files import lock_folder, read_key_pair, write_key_pair
from certs.inspection import Description, describe

CA = "ca"


@dataclass(frozen=True, slots=True)
class IssueRequest:
    """Certificates to issue: `server` is a DNS name or address, a client CN or CN,URI."""

    server: str | None = None
    sans: tuple[str, ...] = ()
    """Further names of the server, dns:NAME or ip:ADDRESS."""
    clients: tuple[str, ...] = ()
    lifetime: timedelta = LEAF_LIFETIME
    ca_lifetime: timedelta = CA_LIFETIME

    def list_stems(self) -> list[str]:
        """Return the file names without suffix; CertsError if two are equal."""
        stems = (["server"] if self.server else []) + [_format_stem(name) for name, _ in self.parse_identities()]
        if len(set(stems)) != len(stems) or CA in stems:
            raise CertsError(
                f"two of the files would have one name: {', '.join(stems)}", "issue them into separate folders"
            )
        return stems

    def list_files(self, out: Path) -> Iterator[Path]:
        return (out / f"{stem}.{kind}" for stem in self.list_stems() for kind in ("crt", "key"))

    def parse_identities(self) -> list[tuple[str, str | None]]:
        """Return common name and URI of each client."""
        parts = (client.partition(",") for client in self.clients)
        return [(name, check_uri(named) if named else None) for name, _, named in parts]


def issue(
    out: Path, request: IssueRequest, ca: tuple[Path, Path] | None = None, *, replace: bool = False
) -> list[tuple[Path, Description]]:
    """Write the certificates and keys of a request; return each new certificate file with its description.

    `ca`: certificate and key of the CA; None: the one in `out`, created if there is none.
    """
    # A rotation may be writing the same pair, or the CA that signs. A mistake makes no folder.
    with lock_folder(out) if out.exists() else nullcontext():
        return _issue_locked(out, request, ca, replace=replace)


def _issue_locked(
    out: Path, request: IssueRequest, ca: tuple[Path, Path] | None, *, replace: bool
) -> list[tuple[Path, Description]]:
    stems = request.list_stems()
    server, lifetime = request.server, request.lifetime
    names = tuple(dict.fromkeys([*list_server_names(server), *map(parse_san, request.sans)])) if server else ()
    authority, is_new = _open_authority(out, ca, request.ca_lifetime)
    issued = [authority.issue_server(server, names, lifetime)] if server else []
    issued += [authority.issue_client(name, named, lifetime) for name, named in request.parse_identities()]
    if is_new:
        write_key_pair(authority.key_pair, out / f"{CA}.crt", out / f"{CA}.key")
    for stem, leaf in zip(stems, issued, strict=True):
        write_key_pair(leaf, out / f"{stem}.crt", out / f"{stem}.key", replace=replace)
    written = ([(CA, authority.key_pair)] if is_new else []) + list(zip(stems, issued, strict=True))
    return [(out / f"{stem}.crt", _describe_leaf(leaf, authority)) for stem, leaf in written]


def _open_authority(out: Path, ca: tuple[Path, Path] | None, lifetime: timedelta) -> tuple[Authority, bool]:
    """Return the authority, and whether it has just been created."""
    certificate, key = ca or (out / f"{CA}.crt", out / f"{CA}.key")
    if ca is None and not certificate.exists() and not key.exists():
        return Authority.create(lifetime=lifetime), True
    return Authority.from_key_pair(read_key_pair(certificate, key)), False


def _format_stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") or "_"


def _describe_leaf(leaf: KeyPair, authority: Authority) -> Description:
    return describe(leaf.certificate, [authority.key_pair.certificate], datetime.now(UTC))
