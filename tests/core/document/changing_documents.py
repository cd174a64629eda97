"""Documents that change at random: in a few services, in what surrounds them, and by mistakes of all kinds."""

import random
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from webhook.core.document import Purpose
from webhook.core.document.changed_services import NEW, LoadedDocument, check_document
from webhook.core.document.service_facts import DocumentFacts
from webhook.core.policy.model import LoadedPolicy, Service

CHANGES = 12
"""Changes of one document in a test."""

_NAMESPACES = ("shop", "shop-eu", "pay", "pay-*", "*-eu", "ops")
_SELECTORS = (
    "",
    ", podSelector: {matchLabels: {app: web}}",
    ", podSelector: {matchLabels: {app: db}}",
    ", podSelector: {matchLabels: {app: web, tier: front}}",
    ", podSelector: {matchExpressions: [{key: team, operator: Exists}]}",
    ", ownerKinds: [Job]",
)
_PLACEMENTS = (
    "",
    "  placement: {labels: {team: red}}\n",
    "  placement: {labels: {app: web}, nodeSelector: {disk: ssd}}\n",
    "  placement: {nodeSelector: {disk: hdd}}\n",
    "  placement:\n    annotations:\n      why: |\n        a text\n        - name: no service\n",
    "  placement: {nodeSelector: {disk: hdd, zone: [}}\n",
    "  placement: {runtimeClassName: kata}\n",
)
_QUOTAS = (
    "",
    "  quota: {windows: [{window: 1h, hard: {pods: 10}}]}\n",
    "  quota:\n    windows:\n    - {window: 1h, hard: {pods: 20, cpu: 4}}\n    - window: 1m\n      hard: {pods: 2}\n",
    "  quota: {scope: Fleet}\n",
    "  quota: {windows: [{window: 60m, hard: {pods: 1}}, {window: 1h, hard: {pods: 2}}]}\n",
)
_POOLS = (
    "",
    "",
    "  pool: big\n",
    "  pool: big\n  guaranteed: {windows: [{window: 1h, hard: {pods: 40}}]}\n",
    "  pool: big\n  guaranteed: {windows: [{window: 1h, hard: {pods: 30}}]}\n",
    "  pool: none\n",
)
_BREAKERS = ("", "", "  breaker: {quotaExceeded: {}}\n")
_ODD = (
    "  slaClass: gold\n",
    "  slaClass: best\n",
    "  colour: green\n",
    '  "slaClass": "gold"   # text\n',
    "  modes: &modes {quota: Warn}\n",
    "  modes: *modes\n",
    "  resources: *shared\n",
    "  slaClass:\n",
    "\n# a comment\n",
    "  failureMode: 'Open\n",
    "  rules: [{name: r, expression: 'object.spec.hostNetwork != true'}]\n",
)
_KIND = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
_SHARED = "resources: &shared {container: {default: {cpu: 1}}}"
_HEADS = (
    _KIND,
    f"{_KIND}defaults:\n  placement: {{nodeSelector: {{pool: a}}}}\n",
    f"{_KIND}defaults: {{{_SHARED}, quota: {{windows: [{{window: 1d, hard: {{pods: 9}}}}]}}}}\n",
    f"{_KIND}exemptions: {{runtimeClasses: [kata], namespaces: [ops]}}\n",
)
_TAILS = (
    "pools: [{name: big, windows: [{window: 1h, hard: {pods: 100}}]}]\n",
    "pools:\n- name: big\n  windows: [{window: 1h, hard: {pods: 100}}]\nunmatched: Warn\n",
    "# the pools\npools: [{name: big, windows: [{window: 1h, hard: {pods: 60}}]}]\nbreakerGuard: {}\n",
)


_SLIPS = ("", "\n", "  ", "'", '"', "{", "]", "\n- ", "#", "&a ", "*a", "\t", "- ", "|", "\r\n", "é")


class ChangingDocument:
    """A document, and its next forms; the same for the same seed."""

    def __init__(self, seed: int, services: int = 8) -> None:
        self._draw = random.Random(seed)  # noqa: S311  no secret
        self._number = count()
        self._head, self._tail = self._draw.choice(_HEADS), self._draw.choice(_TAILS)
        self._indent = self._draw.choice(("", "  "))
        self._services = [self._make_service(is_plain=True) for _ in range(services)]
        self._former = self._copy()
        self._text = self._join()

    @property
    def raw(self) -> bytes:
        return self._text.encode()

    def change(self) -> None:
        """Change something."""
        self._former = self._copy()
        for _ in range(self._draw.choice((1, 1, 1, 2, 4))):
            self._draw.choices(self._changes, (8, 4, 3, 1, 1, 0.5))[0]()
        self._text = self._draw.choices((self._join(), self._spoil(self._join())), (12, 1))[0]

    def take_back(self) -> None:
        """Return to the form before: a mistake was made."""
        self._head, self._tail, self._services = self._former
        self._text = self._join()

    @property
    def _changes(self) -> Sequence[Callable[[], None]]:
        return self._replace, self._insert, self._remove, self._swap, self._change_frame, self._repeat

    def _copy(self) -> tuple[str, str, list[str]]:
        return self._head, self._tail, [*self._services]

    def _join(self) -> str:
        return f"{self._head}services:\n{''.join(self._services)}{self._tail}"

    def _make_service(self, *, is_plain: bool) -> str:
        draw, name = self._draw, f"s{next(self._number)}"
        if is_plain:
            names, selector = f"{name}-ns", ""
            stanzas = [draw.choice(_PLACEMENTS[:4]), draw.choice(_QUOTAS[:3]), draw.choice(_POOLS[:3])]
            stanzas.append(draw.choice(_BREAKERS))
        else:
            name = draw.choice((name, name, name, name, "s1"))
            names = ", ".join(draw.sample(_NAMESPACES, draw.choice((1, 1, 2))))
            names = draw.choice((f"{name}-ns", names)).replace("*-eu", '"*-eu"')
            selector = draw.choice(_SELECTORS)
            stanzas = [draw.choice(listed) for listed in (_PLACEMENTS, _QUOTAS, _POOLS, _BREAKERS)]
            stanzas += [draw.choice(_ODD)] if draw.random() < 0.2 else []
        draw.shuffle(stanzas)
        match = f"  match: {{namespaces: [{names}]{selector}}}\n"
        if draw.random() < 0.05 and not is_plain:
            match = f"  match: {{anyNamespace: true{selector}}}\n"
        text = f"- name: {name}\n{match}{''.join(stanzas)}"
        return "".join(f"{self._indent}{line}" if line.strip() else line for line in text.splitlines(keepends=True))

    def _replace(self) -> None:
        self._services[self._draw.randrange(len(self._services))] = self._make_service(
            is_plain=self._draw.random() < 0.6
        )

    def _insert(self) -> None:
        place = self._draw.randrange(len(self._services) + 1)
        self._services.insert(place, self._make_service(is_plain=self._draw.random() < 0.6))

    def _remove(self) -> None:
        if len(self._services) > 1:
            self._services.pop(self._draw.randrange(len(self._services)))

    def _swap(self) -> None:
        self._draw.shuffle(self._services)

    def _repeat(self) -> None:
        self._services.append(self._draw.choice(self._services))

    def _change_frame(self) -> None:
        self._head, self._tail = self._draw.choice(_HEADS), self._draw.choice(_TAILS)

    def _spoil(self, text: str) -> str:
        """Return a text with a slip of the keyboard."""
        place = self._draw.randrange(len(text))
        slip = self._draw.choice(
            ("", "\n", "  ", "'", '"', "{", "]", "\n- ", "#", "&a ", "*a", "\t", "- ", "|", "\r\n", "é")
        )
        return text[:place] + slip + text[place + self._draw.randrange(3) :]


class Follower:
    """Checks one document after the other, as a server does: it keeps the services and the facts of the last valid."""

    def __init__(self) -> None:
        self.services: tuple[Service, ...] = ()
        self.facts: DocumentFacts | None = None
        self.new: list[str] = []
        """The services of the last document that were read anew."""

    def load(self, raw: bytes, purpose: Purpose = Purpose.SERVE) -> LoadedPolicy:
        checked = check_document(raw, purpose, self.facts)
        services = join_services(checked, self.services)
        self.new = [service.name for service in checked.services]
        self.services, self.facts = services, checked.facts
        return LoadedPolicy(msgspec.structs.replace(checked.policy, services=services), checked.hash)


def join_services(checked: LoadedDocument, former: Sequence[Service]) -> tuple[Service, ...]:
    fresh = iter(checked.services)
    return tuple(next(fresh) if place == NEW else former[place] for place in checked.places)
