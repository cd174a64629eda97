"""Folder with the files of a server outside the cluster: certificates, token, key set and identities."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from certs import CertsError, ServerFolder, TokenClaims, read, write
from webhook.app.operations.shipped_manifests import identities
from webhook.core.document.configmap import NAMESPACE
from webhook.errors import UserError

_SERVICE_HOST = f"podgate.{NAMESPACE}.svc"
_IDENTITIES = "identities.yaml"


def issue_missing(folder: Path, host: str, *, is_dry: bool) -> list[str]:
    """Issue what a server with this host lacks, with `is_dry` nothing; return the paths of the files."""
    try:
        return list(_issue_missing(folder, host, is_dry=is_dry))
    except CertsError as error:
        raise UserError(str(error), error.remedy) from None


def ca_bundle(folder: Path) -> bytes:
    """Return the CAs of the folder; nothing before they have been issued."""
    path = folder / "ca.crt"
    return read(path) if path.exists() else b""


def _issue_missing(folder: Path, host: str, *, is_dry: bool) -> Iterator[str]:
    own_issuer = identities()[0]
    claims = TokenClaims(own_issuer["issuer"], own_issuer["audience"], own_issuer["subject"])
    names = tuple(dict.fromkeys((_SERVICE_HOST, host)))
    yield from ServerFolder(folder, names, claims, is_dry=is_dry).issue_missing()
    path = folder / _IDENTITIES
    if not path.exists():
        if not is_dry:
            write(path, yaml.safe_dump([own_issuer], sort_keys=False).encode(), secret=False)
        yield str(path)
