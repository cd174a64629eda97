"""Brings kube-apiserver's files up to date: what is due is asked for, what is good is written, the rest is told."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from certs import CertsError
from webhook.app.node_agent import NodeCheck
from webhook.errors import UserError
from webhook.node_agent import credential_check
from webhook.node_agent.credential_folder import IDENTITIES, TOKEN, CredentialFolder, texts
from webhook.ports import Credentials

TOKEN_LEFT_MIN_SECONDS = 60  # kube-apiserver reads a token again after so long
CLOCKS_APART_MAX_SECONDS = 60
_DOORS = ("first.pem", "second.pem")
"""Where the controller has put what is for the one port and the other. Without it both get the newest at once."""


@dataclass(frozen=True, slots=True)
class CredentialPlan:
    """What is to stand in the folder, and where it comes from."""

    folder: CredentialFolder
    users: Mapping[str, str]
    """The file of each user's certificate, by the user's name: whom kube-apiserver calls."""
    secret: str
    account: str | None
    """Whose token is asked for; None: the token is in the Secret."""
    audience: str
    lifetime_seconds: int
    renew_after_seconds: int | None
    """How old a token may become; None: half its life."""

    @property
    def identities(self) -> tuple[str, ...]:
        return tuple(name for name in IDENTITIES if name in self.users.values())


class _Changes:
    """What a look has done so far, and what it could not do."""

    def __init__(self, folder: CredentialFolder) -> None:
        self._folder = folder
        self.done: list[str] = []
        self.troubles: list[str] = []

    def put(self, name: str, content: bytes, ends: datetime | None = None) -> None:
        if self._folder.put(name, content):
            told = f", valid until {ends:%Y-%m-%dT%H:%M:%SZ}" if ends is not None else ""
            self.done.append(f"{self._folder.path / name}: written{told}")

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Go on after a step that could not be taken: the others are none the worse for it."""
        try:
            yield
        except (UserError, CertsError) as error:
            self.troubles.append(f"{error}: {error.remedy}" if error.remedy else str(error))


async def look(plan: CredentialPlan, credentials: Credentials, now: datetime) -> NodeCheck:
    """Bring every file up to date that can be."""
    changes = _Changes(plan.folder)
    for name, text in texts(plan.folder.path, plan.users).items():
        with changes.unless_refused():
            changes.put(name, text.encode())
    place = f"secret podgate-system/{plan.secret}"
    secret: dict[str, bytes] = {}
    with changes.unless_refused():
        secret = await credentials.secret(plan.secret)
        for name, door in zip(plan.identities, _DOORS, strict=False):
            with changes.unless_refused():
                pem = credential_check.behind(door, secret, place, now)
                changes.put(name, pem, credential_check.expiry_of(pem))
    if plan.account is not None or secret:  # else that has been told already
        with changes.unless_refused():
            token = await _token(plan, credentials, secret, place, now)
            if token is not None:
                ends = datetime.fromtimestamp(token.expires_at_seconds, UTC)
                changes.put(TOKEN, token.text.encode() + b"\n", ends)
    return NodeCheck(changes.done, tuple(dict.fromkeys(changes.troubles)))


async def _token(
    plan: CredentialPlan, credentials: Credentials, secret: dict[str, bytes], place: str, now: datetime
) -> credential_check.Token | None:
    """Return the token that is to be there; None where the one that is there will do."""
    if plan.account is None:
        if "token" not in secret:
            raise UserError(f"{place}: holds no token", "give --token cluster, or have the controller issue tokens")
        return credential_check.token(secret["token"], plan.audience, f"{place}: token", now)
    before = _written(plan)
    if before is not None and not _is_due(before, plan, now):
        return None
    text = await credentials.token(plan.account, plan.audience, plan.lifetime_seconds)
    return credential_check.token(text, plan.audience, f"the token of {plan.account}", now)


def _written(plan: CredentialPlan) -> credential_check.Token | None:
    try:
        return credential_check.token_of((plan.folder.read(TOKEN) or b"").decode("ascii"))
    except ValueError:
        return None


def _is_due(token: credential_check.Token, plan: CredentialPlan, now: datetime) -> bool:
    if token.audience != plan.audience or not token.subject.endswith(f":{plan.account}"):
        return True
    age_seconds = now.timestamp() - token.issued_at_seconds
    half_seconds = token.lifetime_seconds / 2
    oldest_seconds = half_seconds if plan.renew_after_seconds is None else min(half_seconds, plan.renew_after_seconds)
    # The issuer's clock may be ahead of ours; if by more than that, one of the two has been set since.
    return not -CLOCKS_APART_MAX_SECONDS <= age_seconds <= oldest_seconds
