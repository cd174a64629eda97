"""The authority in a cluster: at each look one of the steps that are due is taken, until none is left.

What the API server trusts is read before what is kept, and every write names the version that was read: whoever was
overtaken while it looked, such as a leader that has lost its Lease unknowingly, writes nothing old over anything new.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from cryptography import x509

from certs import ca_generations as lines
from certs.authority import Authority, Credentials, server_names
from certs.ca_generations import Line
from certs.cluster import webhooks
from certs.cluster.api import Api, OvertakenError
from certs.cluster.secrets import NAMESPACE, TLS, Kept, Vault
from certs.cluster.tasks import MENDED, Done, Looked, told
from certs.cluster.trust_domain import Held, Side, certificates
from certs.cluster.webhooks import CONFIGURATIONS, Configuration
from certs.errors import CertsError
from certs.lifetimes import Lifetimes
from certs.rotation import Bundle, Publish, Step, View, due

SERVING_CA, CLIENT_CA = "podgate-serving-ca", "podgate-client-ca"
SERVING, CLIENT = "podgate-tls", "podgate-apiserver"
SERVING_BUNDLE, CLIENT_BUNDLE = "serving-ca.crt", "ca.crt"
OTHERS = "others-ca.crt"
"""In podgate-tls, the operator's own: CAs of other clients, such as reporters."""
_SERVICE = f"podgate.{NAMESPACE}.svc"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long everything lives, and who the API server is."""

    serving: Lifetimes
    client: Lifetimes
    client_name: str = "kube-apiserver"

    def remarks(self) -> tuple[str, ...]:
        """Say what is unusual."""
        sides = {"serving": self.serving, "client": self.client}
        return tuple(f"{name}: {text}" for name, lives in sides.items() for text in lives.remarks())


class Keeping:
    """A Duty: two lines of CAs, a leaf of each, and their bundles wherever they are trusted."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._right: dict[tuple[str, str], Bundle] = {}
        """What stood in each place when it was last right: if that is still wanted and missing, somebody changed it."""

    async def look(self, api: Api, now: datetime) -> Looked:
        troubles: list[str] = []
        ends: dict[str, datetime] = {}
        try:
            sides = [(side, side.view()) for side in await self._sides(api, troubles)]
        except CertsError as error:
            return Looked(troubles=(*troubles, told(error)))
        for side, _ in sides:
            ends.update(side.ends())
        for side, view in sides:
            self._note(side, view)
            for step in due(view, side.lifetimes, now):
                try:
                    done = await side.take(step, now)
                except OvertakenError:
                    return Looked(None, tuple(troubles), ends, is_overtaken=True)
                except CertsError as error:
                    troubles.append(told(error))
                else:
                    return Looked(self._judged(side, view, step, done), tuple(troubles), ends)
        return Looked(None, tuple(troubles), ends)

    async def _sides(self, api: Api, troubles: list[str]) -> list[Side]:
        """Return the clients' side, then the serving one, whose first leaf is put beside the clients' CAs."""
        vault = Vault(api)
        configurations = {place: await _or_why(webhooks.find(api, place)) for place in CONFIGURATIONS}
        tls = await _or_why(_held(vault, SERVING))
        caller = await _unless_foreign(_held(vault, CLIENT), troubles)
        sides = [
            await _unless_foreign(self._client_side(api, caller, tls, troubles), troubles),
        ]
        if isinstance(tls, CertsError):
            troubles.append(told(tls))
        else:
            sides.append(await _unless_foreign(self._serving_side(api, tls, configurations, troubles), troubles))
        return [side for side in sides if side is not None]

    async def _client_side(self, api: Api, caller: Held | None, tls: Held | CertsError, troubles: list[str]) -> Side:
        ca, plan = await _held(Vault(api), CLIENT_CA), self._plan
        line = ca.line()

        def issue(authority: Authority, now: datetime) -> Credentials:
            return authority.issue_client(plan.client_name, lifetime=plan.client.leaf, now=now)

        return Side(
            api=api,
            ca=ca,
            line=line,
            lifetimes=plan.client,
            leaf=caller,
            issue=issue,
            trusted_in=tls if isinstance(tls, Held) else Held(SERVING, Kept()),
            trusted_key=CLIENT_BUNDLE,
            others=_others(tls, caller, line, troubles) if isinstance(tls, Held) else frozenset(),
            unknown={SERVING: tls} if isinstance(tls, CertsError) else {},
        )

    async def _serving_side(
        self,
        api: Api,
        tls: Held,
        configurations: Mapping[str, Configuration | CertsError | None],
        troubles: list[str],
    ) -> Side:
        vault, plan = Vault(api), self._plan
        ca = await _held(vault, SERVING_CA)
        # Only what is made anew needs the clients' CAs: if something is wrong with them, all else goes on.
        clients = None if tls.kept.exists else await _unless_foreign(_line(vault, CLIENT_CA), [])
        names = _names(configurations, tls, troubles)

        def issue(authority: Authority, now: datetime) -> Credentials:
            return authority.issue_server(_SERVICE, tuple(names), plan.serving.leaf, now)

        return Side(
            api=api,
            ca=ca,
            line=ca.line(),
            lifetimes=plan.serving,
            leaf=tls,
            issue=issue,
            trusted_in=tls,
            trusted_key=SERVING_BUNDLE,
            leaf_kind=TLS,
            beside_leaf={CLIENT_BUNDLE: lines.bundle(clients or ())},
            names=frozenset(names),
            configurations={place: one for place, one in configurations.items() if isinstance(one, Configuration)},
            unknown={place: why for place, why in configurations.items() if isinstance(why, CertsError)},
        )

    def _note(self, side: Side, view: View) -> None:
        wanted = _wanted(view)
        for place, trusts in view.places.items():
            if all(trust == wanted for trust in trusts):
                self._right[side.ca.name, place] = wanted

    def _judged(self, side: Side, view: View, step: Step, done: Done) -> Done:
        if isinstance(step, Publish) and self._right.get((side.ca.name, step.place)) == _wanted(view):
            return replace(done, kind=MENDED, text=f"{done.text} again: somebody had changed it")
        return done


def _wanted(view: View) -> Bundle:
    return frozenset(one.certificate for one in view.line)


async def _or_why(found: Awaitable[_Found]) -> _Found | CertsError:
    """Return it, or why nobody can tell: renewal goes on meanwhile, only no new CA begins to sign."""
    try:
        return await found
    except CertsError as error:
        return error


async def _held(vault: Vault, name: str) -> Held:
    return Held(name, await vault.find(name))


async def _line(vault: Vault, name: str) -> Line:
    return (await _held(vault, name)).line()


async def _unless_foreign(found: Awaitable[_Found], troubles: list[str]) -> _Found | None:
    """Return it; None where it is somebody else's, or not to be read: all else goes on."""
    try:
        return await found
    except CertsError as error:
        troubles.append(told(error))
        return None


def _others(tls: Held, caller: Held | None, line: Line, troubles: list[str]) -> Bundle:
    """Return whom else the server takes for a client; where that cannot be told, whoever stands there stays."""
    ours = {one.certificate for one in line}
    secret, there = f"Secret {NAMESPACE}/{tls.name}", certificates(tls.kept.data.get(CLIENT_BUNDLE, b""))
    text = tls.kept.data.get(OTHERS, b"")
    found = certificates(text)
    if text.strip() and not found:
        troubles.append(
            f"{secret}: {OTHERS}: holds no certificates in PEM: write one after the other, or delete the key"
        )
        found = there
    elif caller is None and (stay := there - ours - found):
        names = ", ".join(sorted(one.subject.rfc4514_string() for one in stay))
        what = f"keeps {names}, for what is in Secret {CLIENT} may be signed by it, and cannot be read"
        troubles.append(f"{secret}: {CLIENT_BUNDLE}: {what}: see to that Secret, or write that CA into {OTHERS}")
        found |= there
    return found - ours


def _names(
    configurations: Mapping[str, Configuration | CertsError | None], tls: Held, troubles: list[str]
) -> dict[x509.GeneralName, None]:
    """Return the names of the Service, and whatever else the API server calls us by; each once, in order."""
    names = dict.fromkeys(server_names(_SERVICE))
    borne = dict.fromkeys(tls.names())  # a configuration that is not understood may still call us by one of them
    for found in configurations.values():
        if isinstance(found, CertsError):
            names.update(borne)
        elif found is not None:
            try:
                names.update(dict.fromkeys(found.names))
            except CertsError as error:
                names.update(borne)
                troubles.append(told(error))
    return names
