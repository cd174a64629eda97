"""Check of a document that differs from a valid one in some services: these are read, with those that they concern.

The rest of the document is left as it was checked. A service is read again if its text is another, or if a service
that is read again can make it invalid: its Pods would belong to that one, a label decides its Pods, or a pool has no
room for its guarantee. Any problem, and any doubt, leads to a check of the whole document, which words the problems.

Why, and what is not covered: docs/design/changed-services.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.document.feature_gates import Purpose
from webhook.core.document.loading import EffectiveDocument, compute_hash, load_unproved, refuse_flaws
from webhook.core.document.rules.match import ReachKey, list_covering_keys, list_reach_keys
from webhook.core.document.service_facts import (
    DocumentFacts,
    ServiceFacts,
    collect_facts,
    count_frame_values,
    digest_frame,
    digest_services,
)
from webhook.core.document.yaml.nodes import DOCUMENT_NODES_MAX
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.document.yaml.service_texts import ServiceTexts, cut_services
from webhook.core.document.yaml.text import decode_text
from webhook.core.kubernetes.label_constraints import list_covering_patterns
from webhook.core.policy.model import SERVICES_MAX, Policy, Service
from webhook.core.proof import RuleIndex, RuleSet, choose_sets

NEW = -1
_COMPARISONS_MAX = 1_000_000
"""Between services; with more, the whole document is checked as fast."""


class LoadedDocument(Struct, frozen=True):
    """A valid document: the policy without its services, and these.

    `places`: for each service its place in the document before, or NEW for the next one of `services`. `facts`: for
    the check of the document after it; None if that will have to be a whole one.
    """

    policy: Policy
    hash: str
    places: tuple[int, ...]
    services: tuple[Service, ...]
    facts: DocumentFacts | None


class _DoubtError(Exception):
    """The whole document has to be checked."""


class _Change(NamedTuple):
    """A document in pieces, with the facts of its services; None where they are not known yet."""

    texts: ServiceTexts
    digests: Sequence[bytes]
    purpose: Purpose
    places: tuple[int, ...]
    """The place of each service in the document before, or NEW."""
    known: tuple[ServiceFacts | None, ...]

    def read(self, places: Sequence[int]) -> EffectiveDocument:
        """Return the document with some of its services only. DocumentError: it is invalid."""
        part = self.texts.select(places)
        effective = load_unproved(part.join().encode(), self.purpose, advises=False)
        if not part.is_cut_at_services(effective.written):
            raise _DoubtError
        return effective


def check_document(raw: bytes, purpose: Purpose, former: DocumentFacts | None = None) -> LoadedDocument:
    """Return the policy in `raw`. DocumentError: all problems that prevent its use for `purpose`.

    `former`: facts about the document before; with others, the whole document is checked.
    """
    if former is not None:
        with suppress(DocumentError, _DoubtError):
            return _check_changes(raw, purpose, former)
    return _check_whole(raw, purpose)


def _check_whole(raw: bytes, purpose: Purpose) -> LoadedDocument:
    effective = load_unproved(raw, purpose, advises=False)
    index = RuleIndex(effective.policy.services)
    proof = index.prove()
    refuse_flaws(proof.flaws, effective.document)
    services = effective.policy.services
    return LoadedDocument(
        policy=replace(effective.policy, services=()),
        hash=compute_hash(raw),
        places=(NEW,) * len(services),
        services=services,
        facts=_collect_all(raw, purpose, effective, index),
    )


def _collect_all(raw: bytes, purpose: Purpose, effective: EffectiveDocument, index: RuleIndex) -> DocumentFacts | None:
    texts = cut_services(decode_text(raw))
    if texts is None or not texts.is_cut_at_services(effective.written):
        return None
    return DocumentFacts(
        frame=digest_frame(texts, purpose),
        frame_values=count_frame_values(effective),
        services=collect_facts(digest_services(texts), effective, index.of_services),
        proved=tuple(choose_sets(index.sets)),
    )


def _check_changes(raw: bytes, purpose: Purpose, former: DocumentFacts) -> LoadedDocument:
    """Check only what has changed. DocumentError, _DoubtError: that does not suffice."""
    change = _find_change(raw, purpose, former)
    new = [place for place, facts in enumerate(change.known) if facts is None]
    read = new or [0]
    effective = change.read(read)
    index = RuleIndex(effective.policy.services)
    fresh = collect_facts([change.digests[place] for place in read], effective, index.of_services)
    found = dict(zip(read, fresh, strict=True))
    facts = tuple(found[place] if known is None else known for place, known in enumerate(change.known))
    _check_sizes(facts, former.frame_values)
    concerned = _find_concerned(facts, new)
    if len(concerned) > len(new):
        change.read(sorted(concerned))
    proved = _prove(change, facts, former)
    return LoadedDocument(
        policy=replace(effective.policy, services=()),
        hash=compute_hash(raw),
        places=change.places,
        services=effective.policy.services if new else (),
        facts=DocumentFacts(former.frame, former.frame_values, facts, proved),
    )


def _find_change(raw: bytes, purpose: Purpose, former: DocumentFacts) -> _Change:
    """Return how a document differs. _DoubtError: in more than services, or in their order."""
    texts = cut_services(decode_text(raw))
    if texts is None or digest_frame(texts, purpose) != former.frame or len(texts.services) > SERVICES_MAX:
        raise _DoubtError
    digests = digest_services(texts)
    known = {facts.digest: place for place, facts in enumerate(former.services)}
    places = tuple(known.get(digest, NEW) for digest in digests)
    kept = [place for place in places if place != NEW]
    if len(kept) < len(places) - len(kept) or any(after <= before for before, after in pairwise(kept)):
        raise _DoubtError
    return _Change(
        texts, digests, purpose, places, tuple(None if place == NEW else former.services[place] for place in places)
    )


def _check_sizes(facts: Sequence[ServiceFacts], frame_values: int) -> None:
    """_DoubtError: a name occurs twice, or the document may have more values, with its keys, than are allowed."""
    names = {service.name for service in facts}
    written = frame_values + sum(service.written for service in facts)
    merged = sum(service.merged for service in facts)
    if len(names) < len(facts) or max(2 * written, merged) > DOCUMENT_NODES_MAX:
        raise _DoubtError


def _find_concerned(facts: Sequence[ServiceFacts], new: Sequence[int]) -> set[int]:
    """Return the places of the new services and of all that they are checked with. _DoubtError: these are too many."""
    if len(new) * len(facts) > _COMPARISONS_MAX:
        raise _DoubtError
    found = {*new}
    changed = [facts[place] for place in new]
    if any(service.is_guaranteed for service in changed):
        found.update(place for place, service in enumerate(facts) if service.is_guaranteed)
    selected = {key for service in changed for key in service.selected}
    labels = {key for service in changed for key in service.labels}
    if selected or labels:
        found.update(
            place
            for place, service in enumerate(facts)
            if not (labels.isdisjoint(service.selected) and selected.isdisjoint(service.labels))
        )
    judged = {*new, *_find_shadowed(facts, new)}
    found |= judged | _find_shadows(facts, judged)
    if 2 * len(found) > len(facts):
        raise _DoubtError
    return found


def _find_shadowed(facts: Sequence[ServiceFacts], new: Sequence[int]) -> Iterator[int]:
    """Yield the places of services below new ones that may match Pods of theirs."""
    patterns = {pattern for place in new for pattern, _ in _list_own_keys(facts[place])}
    wide = {pattern for pattern in patterns if "*" in pattern}
    for place in range(min(new, default=len(facts)), len(facts)):
        names = facts[place].namespaces
        # Most services have other namespaces: that is seen at once.
        is_near = "" in patterns or not patterns.isdisjoint(names)
        if is_near or (wide and any(not wide.isdisjoint(list_covering_patterns(name)) for name in names)):
            wanted = _list_wanted_keys(facts[place])
            if any(not wanted.isdisjoint(_list_own_keys(facts[other])) for other in new if other < place):
                yield place


def _find_shadows(facts: Sequence[ServiceFacts], judged: Iterable[int]) -> set[int]:
    """Return the places of services that may match Pods of the judged ones."""
    by_key: dict[ReachKey, list[int]] = {}
    for place, service in enumerate(facts):
        for key in _list_own_keys(service):
            by_key.setdefault(key, []).append(place)
    return {other for place in judged for key in _list_wanted_keys(facts[place]) for other in by_key.get(key, ())}


def _list_own_keys(service: ServiceFacts) -> list[ReachKey]:
    return list_reach_keys(service.namespaces, service.exact_labels)


def _list_wanted_keys(service: ServiceFacts) -> set[ReachKey]:
    names = service.namespaces or ("",)
    return {key for name in names for key in list_covering_keys(name, service.exact_labels)}


def _prove(change: _Change, facts: Sequence[ServiceFacts], former: DocumentFacts) -> tuple[RuleSet, ...]:
    """Prove the sets of rules that were not proved, and return all that are proved now."""
    chosen = choose_sets(list(dict.fromkeys(rules for service in facts for rules in service.rules)))
    missing = dict.fromkeys(chosen)
    for rules in former.proved:
        missing.pop(rules, None)
    first: dict[RuleSet, int] = {}
    for place, service in enumerate(facts):
        for rules in service.rules:
            if rules in missing:
                first.setdefault(rules, place)
    if missing:
        effective = change.read(sorted({*first.values()}))
        flaws = RuleIndex(effective.policy.services).find_flaws(missing)
        refuse_flaws(tuple(flaws), effective.document)
    return tuple(chosen)
