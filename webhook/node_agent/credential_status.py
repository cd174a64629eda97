"""Status of the files in kube-apiserver's folder: validity and expiry."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from webhook.node_agent import credential_check
from webhook.node_agent.credential_folder import (
    CONFIGURATION,
    IDENTITIES,
    IDENTITY,
    KUBECONFIG,
    TOKEN,
    CredentialFolder,
)
from webhook.node_agent.credential_renewal import TOKEN_LEFT_MIN_SECONDS

_IDENTITY_LEFT_MIN_SECONDS = 300  # kube-apiserver's interval for reloading a certificate


def file_status(folder: CredentialFolder, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield a row for each file: `file`, `good`, and for credentials `validUntil`."""
    for name in (CONFIGURATION, KUBECONFIG):
        yield {"file": str(folder.path / name), "good": folder.read(name) is not None}
    identities = [name for name in IDENTITIES if name == IDENTITY or folder.read(name) is not None]
    least = {**dict.fromkeys(identities, _IDENTITY_LEFT_MIN_SECONDS), TOKEN: TOKEN_LEFT_MIN_SECONDS}
    for name, left_min_seconds in least.items():
        end = _end(name, folder.read(name) or b"")
        yield {
            "file": str(folder.path / name),
            "good": end is not None and (end - now).total_seconds() > left_min_seconds,
            "validUntil": f"{end:%Y-%m-%dT%H:%M:%SZ}" if end else None,
        }


def _end(name: str, content: bytes) -> datetime | None:
    try:
        if name in IDENTITIES:
            return credential_check.expiry_of(content)
        return datetime.fromtimestamp(credential_check.token_of(content.decode("ascii")).expires_at_seconds, UTC)
    except ValueError:
        return None
