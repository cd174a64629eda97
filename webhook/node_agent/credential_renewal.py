"""Renewal of kube-apiserver's files: reads the Secret, requests tokens, writes valid files, reports validity."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from certs import CertsError
from webhook.app.node_agent import NodeCheck
from webhook.errors import UserError
from webhook.node_agent import credential_check
from webhook.node_agent.credential_folder import (
    CONFIGURATION,
    IDENTITIES,
    IDENTITY,
    KUBECONFIG,
    TOKEN,
    CredentialFolder,
    render_static_files,
)
from webhook.ports import Credentials

TOKEN_LEFT_MIN_SECONDS = 60  # kube-apiserver's interval for reading the token
CLOCKS_APART_MAX_SECONDS = 60
_PORT_KEYS = ("first.pem", "second.pem")
"""Keys of the Secret with the certificate for each port. Without them both ports get the newest at once."""


@dataclass(frozen=True, slots=True)
class CredentialPlan:
    """The content of the folder, and its sources."""

    folder: CredentialFolder
    users: Mapping[str, str]
    """The certificate file of each kubeconfig user, by the host and port that kube-apiserver calls."""
    secret: str
    account: str | None
    """ServiceAccount to request a token for; None: the token is in the Secret."""
    audience: str
    lifetime_seconds: int
    renew_after_seconds: int | None
    """Maximum age of a token; None: half its lifetime."""

    @property
    def identities(self) -> tuple[str, ...]:
        return tuple(name for name in IDENTITIES if name in self.users.values())


class _Changes:
    """Changes and errors so far."""

    def __init__(self, folder: CredentialFolder) -> None:
        self._folder = folder
        self.done: list[str] = []
        self.errors: list[str] = []

    def put(self, name: str, content: bytes, ends: datetime | None = None) -> None:
        if self._folder.put(name, content):
            until = f", valid until {ends:%Y-%m-%dT%H:%M:%SZ}" if ends is not None else ""
            self.done.append(f"{self._folder.path / name}: written{until}")

    @contextmanager
    def note_errors(self) -> Iterator[None]:
        """Note the error of a step, and continue with the others."""
        try:
            yield
        except (UserError, CertsError) as error:
            self.errors.append(f"{error}: {error.remedy}" if error.remedy else str(error))


async def renew(plan: CredentialPlan, credentials: Credentials, now: datetime) -> NodeCheck:
    """Update every file that is due and can be updated."""
    changes = _Changes(plan.folder)
    for name, text in render_static_files(plan.folder.path, plan.users).items():
        with changes.note_errors():
            changes.put(name, text.encode())
    place = f"secret podgate-system/{plan.secret}"
    secret: dict[str, bytes] = {}
    with changes.note_errors():
        secret = await credentials.read_secret(plan.secret)
        for name, key in zip(plan.identities, _PORT_KEYS, strict=False):
            with changes.note_errors():
                pem = credential_check.encode_port_pair(key, secret, place, now)
                changes.put(name, pem, credential_check.find_expiry(pem))
    if plan.account is not None or secret:  # otherwise an error has been noted already
        with changes.note_errors():
            token = await _request_token(plan, credentials, secret, place, now)
            if token is not None:
                ends = datetime.fromtimestamp(token.expires_at_seconds, UTC)
                changes.put(TOKEN, token.text.encode() + b"\n", ends)
    return NodeCheck(changes.done, tuple(dict.fromkeys(changes.errors)))


async def _request_token(
    plan: CredentialPlan, credentials: Credentials, secret: dict[str, bytes], place: str, now: datetime
) -> credential_check.Token | None:
    """Return the token to write; None if the existing one need not be replaced."""
    if plan.account is None:
        if "token" not in secret:
            raise UserError(f"{place}: holds no token", "give --token cluster, or have the controller issue tokens")
        return credential_check.check_token(secret["token"], plan.audience, f"{place}: token", now)
    before = _read_token(plan)
    if before is not None and not _is_due(before, plan, now):
        return None
    text = await credentials.request_token(plan.account, plan.audience, plan.lifetime_seconds)
    return credential_check.check_token(text, plan.audience, f"the token of {plan.account}", now)


def _read_token(plan: CredentialPlan) -> credential_check.Token | None:
    try:
        return credential_check.parse_token((plan.folder.read(TOKEN) or b"").decode("ascii"))
    except ValueError:
        return None


def _is_due(token: credential_check.Token, plan: CredentialPlan, now: datetime) -> bool:
    if token.audience != plan.audience or not token.subject.endswith(f":{plan.account}"):
        return True
    age_seconds = now.timestamp() - token.issued_at_seconds
    half_seconds = token.lifetime_seconds / 2
    oldest_seconds = half_seconds if plan.renew_after_seconds is None else min(half_seconds, plan.renew_after_seconds)
    # The issuer's clock may be ahead; by more than that, one of the clocks has been set since.
    return not -CLOCKS_APART_MAX_SECONDS <= age_seconds <= oldest_seconds


_IDENTITY_LEFT_MIN_SECONDS = 300  # kube-apiserver's interval for reloading a certificate


def list_file_status(folder: CredentialFolder, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield a row for each file: `file`, `good`, and for credentials `validUntil`."""
    for name in (CONFIGURATION, KUBECONFIG):
        yield {"file": str(folder.path / name), "good": folder.read(name) is not None}
    identities = [name for name in IDENTITIES if name == IDENTITY or folder.read(name) is not None]
    least = {**dict.fromkeys(identities, _IDENTITY_LEFT_MIN_SECONDS), TOKEN: TOKEN_LEFT_MIN_SECONDS}
    for name, left_min_seconds in least.items():
        end = _find_end(name, folder.read(name) or b"")
        yield {
            "file": str(folder.path / name),
            "good": end is not None and (end - now).total_seconds() > left_min_seconds,
            "validUntil": f"{end:%Y-%m-%dT%H:%M:%SZ}" if end else None,
        }


def _find_end(name: str, content: bytes) -> datetime | None:
    try:
        if name in IDENTITIES:
            return credential_check.find_expiry(content)
        return datetime.fromtimestamp(credential_check.parse_token(content.decode("ascii")).expires_at_seconds, UTC)
    except ValueError:
        return None
