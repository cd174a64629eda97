"""Folder with the credentials that the user manages, and the Secrets with its content."""

import base64
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from certs import CertsError, IssueRequest, ServerFolder, TokenClaims, issue, read, write
from webhook.authentication.secret_path_file import read_paths
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.record import SCHEDULER
from webhook.errors import UserError
from webhook.operations.shipped_manifests import read_identities

_SERVICE_HOST = f"podgate.{NAMESPACE}.svc"
_IDENTITIES, _SECRET_PATH = "identities.yaml", "path"
_SECRET_BYTES = 32
_SCHEDULER_FOLDER, _EXTENDER_HOST = "scheduler", f"podgate-extender.{NAMESPACE}.svc"


def issue_missing(folder: Path, host: str, *, is_dry: bool) -> list[str]:
    """Issue the files that a server with this host lacks, none with `is_dry`; return their paths."""
    try:
        return list(_issue_files(folder, host, is_dry=is_dry))
    except CertsError as error:
        raise UserError(str(error), error.remedy) from None


def is_only_token(files: list[str]) -> bool:
    """Return whether nothing but the token has been issued, in place of an old one."""
    return [Path(file).name for file in files] == ["token"]


def issue_for_service(folder: Path, *, is_reduced: bool, is_dry: bool) -> list[str]:
    """Issue the files that servers in the cluster lack, in reduced mode a secret path too; return their paths."""
    issued = issue_missing(folder, _SERVICE_HOST, is_dry=is_dry)
    path = folder / _SECRET_PATH
    if is_reduced and not path.exists():
        if not is_dry:
            write(path, secrets.token_hex(_SECRET_BYTES).encode(), secret=True)
        issued.append(str(path))
    return issued


def read_secret_path(folder: Path) -> str:
    """Return the path that the API server calls in reduced mode; "" before it has been created."""
    path = folder / _SECRET_PATH
    return read_paths(read(path), path)[0] if path.exists() else ""


def build_credentials(folder: Path, *, is_reduced: bool) -> list[dict[str, Any]]:
    """Return the Secrets and the key set with the content of the folder; nothing before they have been issued."""
    if not (folder / "ca.crt").exists():
        return []
    serving = {"tls.crt": "server.crt", "tls.key": "server.key", "serving-ca.crt": "ca.crt"}
    if is_reduced:
        return [
            _build_secret("podgate-tls", folder, serving),
            _build_secret("podgate-reduced-path", folder, {"path": _SECRET_PATH}),
        ]
    caller = {"tls.crt": "kube-apiserver.crt", "tls.key": "kube-apiserver.key", "ca.crt": "ca.crt", "token": "token"}
    key_set = _build_object("ConfigMap", "podgate-jwks", {"jwks.json": read(folder / "jwks.json").decode()})
    tls = _build_secret("podgate-tls", folder, {**serving, "ca.crt": "ca.crt"})
    return [tls, _build_secret("podgate-apiserver", folder, caller), key_set]


def issue_for_scheduler(pki: Path, *, is_dry: bool) -> list[str]:
    """Issue the missing files in the folder `scheduler` of `pki`, which has a CA of its own; return their paths."""
    folder = pki / _SCHEDULER_FOLDER
    has_server, has_client = ((folder / f"{stem}.crt").exists() for stem in ("server", SCHEDULER))
    request = IssueRequest(server=None if has_server else _EXTENDER_HOST, clients=() if has_client else (SCHEDULER,))
    if is_dry:
        found = [str(file) for file in request.list_files(folder) if file.suffix == ".crt"]
        return [str(folder / "ca.crt"), *found] if found and not (folder / "ca.crt").exists() else found
    if has_server and has_client:
        return []
    try:
        return [str(file) for file, _ in issue(folder, request)]
    except CertsError as error:
        raise UserError(str(error), error.remedy) from None


def build_scheduler_credentials(pki: Path) -> list[dict[str, Any]]:
    """Return the Secrets with the content of the folder; nothing before they have been issued."""
    folder = pki / _SCHEDULER_FOLDER
    if not (folder / "ca.crt").exists():
        return []
    cas = {"ca.crt": "ca.crt", "serving-ca.crt": "ca.crt"}
    return [
        _build_secret("podgate-extender-tls", folder, {"tls.crt": "server.crt", "tls.key": "server.key", **cas}),
        _build_secret(
            "podgate-scheduler-tls", folder, {"tls.crt": f"{SCHEDULER}.crt", "tls.key": f"{SCHEDULER}.key", **cas}
        ),
    ]


def _build_secret(name: str, folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(read(folder / file)).decode() for key, file in files.items()}
    return {**_build_object("Secret", name, data), "type": "Opaque"}


def _build_object(kind: str, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "podgate"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": dict(data)}


def read_ca_bundle(folder: Path) -> bytes:
    """Return the CAs of the folder; nothing before they have been issued."""
    path = folder / "ca.crt"
    return read(path) if path.exists() else b""


def _issue_files(folder: Path, host: str, *, is_dry: bool) -> Iterator[str]:
    own_issuer = read_identities()[0]
    claims = TokenClaims(own_issuer["issuer"], own_issuer["audience"], own_issuer["subject"])
    names = tuple(dict.fromkeys((_SERVICE_HOST, host)))
    yield from ServerFolder(folder, names, claims, is_dry=is_dry).issue_missing()
    path = folder / _IDENTITIES
    if not path.exists():
        if not is_dry:
            write(path, yaml.safe_dump([own_issuer], sort_keys=False).encode(), secret=False)
        yield str(path)
