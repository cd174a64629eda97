"""Facts about the services of a valid document, by which a document that differs in a few of them is checked.

A service is known by its text, which has no positions: with the same text under the same head it has the same values.
Beside it stands what services say to each other: names, namespaces, labels and guarantees.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec import Struct

from webhook.core.document.feature_gates import Purpose
from webhook.core.document.loading import EffectiveDocument
from webhook.core.document.rules.match import list_exact_labels
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.service_texts import ServiceTexts
from webhook.core.kubernetes.label_constraints import build_constraints
from webhook.core.policy.model import Service
from webhook.core.proof import RuleSet

_DIGEST_BYTES = 16


class ServiceFacts(Struct, frozen=True, array_like=True, gc=False):
    """What other services, and the document as a whole, are checked for.

    `exact_labels`: labels of Pods with the only value that its podSelector accepts. `selected`: keys that it reads.
    `labels`: keys of the labels that the service writes. `written`, `merged`: number of values in its text, and with
    `defaults`.
    """

    digest: bytes
    name: str
    namespaces: tuple[str, ...]
    exact_labels: tuple[tuple[str, str], ...]
    selected: tuple[str, ...]
    labels: tuple[str, ...]
    is_guaranteed: bool
    written: int
    merged: int
    rules: tuple[RuleSet, ...]


class DocumentFacts(Struct, frozen=True, array_like=True, gc=False):
    """Facts about a valid document.

    `frame`: a digest of everything but the services, and of the purpose. `frame_values`: number of values outside of
    the services. `proved`: the sets of rules that were proved.
    """

    frame: bytes
    frame_values: int
    services: tuple[ServiceFacts, ...]
    proved: tuple[RuleSet, ...]


def digest_frame(texts: ServiceTexts, purpose: Purpose) -> bytes:
    """Return the digest of everything but the services."""
    frame = blake2b(digest_size=_DIGEST_BYTES)
    for part in (purpose, texts.head, texts.tail):
        frame.update(_digest(part))
    return frame.digest()


def digest_services(texts: ServiceTexts) -> list[bytes]:
    """Return the digest of each service's text."""
    return [_digest(text) for text in texts.services]


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def collect_facts(
    digests: Iterable[bytes], effective: EffectiveDocument, rules: Sequence[tuple[RuleSet, ...]]
) -> tuple[ServiceFacts, ...]:
    """Return the facts about the services of a document, whose texts have these digests."""
    written, merged = _list_services(effective.written), _list_services(effective.document)
    return tuple(
        _collect(digest, service, (written[place].size, merged[place].size), rules[place])
        for place, (digest, service) in enumerate(zip(digests, effective.policy.services, strict=True))
    )


def count_frame_values(effective: EffectiveDocument) -> int:
    """Return the number of values outside of the services."""
    return effective.written.size - sum(service.size for service in _list_services(effective.written))


def _list_services(root: Node) -> list[Node]:
    services = root.child("services").value
    return services if isinstance(services, list) else []


def _collect(digest: bytes, service: Service, sizes: tuple[int, int], rules: tuple[RuleSet, ...]) -> ServiceFacts:
    selector, placement = service.match.pod_selector, service.placement
    constraints = build_constraints(selector)
    return ServiceFacts(
        *(digest, service.name, service.match.namespaces),
        exact_labels=tuple(list_exact_labels(constraints)),
        selected=tuple(constraints),
        labels=() if placement is None else tuple(placement.labels),
        is_guaranteed=service.guaranteed is not None,
        written=sizes[0],
        merged=sizes[1],
        rules=rules,
    )
