"""Prover: rewrites and validates each Pod of the corpus, or of an even sample, under every distinct set of rules."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import jsonpatch
import msgspec
from msgspec import Struct

from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import USERS_OWN, check
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.patch import PatchOperation
from webhook.core.placement import merge_variant
from webhook.core.policy.model import Modes, Policy, Service
from webhook.core.proof.corpus import CORPUS, Sample

_HASH = "0" * 16
_DEFECT = "this is a defect of Podgate: report it, and use simpler rules until it is fixed"

_pod = msgspec.json.Decoder(Pod)


class RewriteFailure(NamedTuple):
    """A failure; each `kind` is reported once."""

    kind: str
    reason: str
    remedy: str


def find_rewrite_failure(sample: Sample, service: Service) -> RewriteFailure | None:
    """Return the failure of this Pod under these rules, None without one."""
    try:
        return _try_rewrite(sample, service)
    except MemoryError:  # not caused by a rule
        raise
    except Exception as error:  # noqa: BLE001  any defect: a review of such a Pod would hit it, too
        return RewriteFailure("failed", f"{sample.name} cannot be rewritten: {error!r}", _DEFECT)


def _try_rewrite(sample: Sample, service: Service) -> RewriteFailure | None:
    first = rewrite(sample.pod, service, _HASH)
    rewritten = _apply_patch(sample, first)
    again = rewrite(rewritten, service, _HASH)
    if again:
        at = again[0].path
        text = f"{sample.name} is changed again by every rewrite, each time at {at}"
        return RewriteFailure("diverged", text, _DEFECT)
    findings = check(rewritten, service, hash_known=True)
    serious = (found for found in findings if sample.is_plain or found.code not in USERS_OWN)
    return next((_describe_failure(sample, service, found) for found in serious), None)


def _apply_patch(sample: Sample, operations: tuple[PatchOperation, ...]) -> Pod:
    document: Any = msgspec.json.decode(sample.raw)
    # Nobody else uses the document, so no copy is needed.
    patched = jsonpatch.JsonPatch(msgspec.to_builtins(operations)).apply(document, in_place=True)
    return _pod.decode(msgspec.json.encode(patched))


def _describe_failure(sample: Sample, service: Service, found: Finding) -> RewriteFailure:
    message = found.message.removeprefix(f"service {service.name}: ")
    kind = f"{found.code} {found.field}"
    if sample.is_plain:
        remedy = "fix these rules, which contradict each other: no Pod can satisfy them"
        return RewriteFailure(
            kind, f"{sample.name}, which sets none of these fields, cannot satisfy it: {found.code}: {message}", remedy
        )
    return RewriteFailure(kind, f"{sample.name} does not satisfy it after a rewrite: {found.code}: {message}", _DEFECT)


SETS_MAX = 100
"""Limit of sets proved in one policy, so that every policy loads quickly."""
RULES_BYTES_MAX = 200_000
"""Limit of bytes of rules proved in one policy, as JSON: work also grows with their length."""

_STANZAS = ("placement", "resources")
_encoder = msgspec.json.Encoder(enc_hook=str, order="deterministic")


class Flaw(Struct, frozen=True):
    """A defect of one stanza of one service."""

    service: int
    """Its index in the policy."""
    stanza: str
    """`placement` or `resources`."""
    reason: str
    remedy: str


class Proof(Struct, frozen=True):
    """The result of a proof. A sampled proof says nothing about the other sets."""

    flaws: tuple[Flaw, ...]
    proved: int
    """Number of distinct sets of rules that were proved."""
    sets: int
    """Number of distinct sets of rules in the policy."""

    @property
    def is_sampled(self) -> bool:
        return self.proved < self.sets


def prove(policy: Policy) -> Proof:
    """Try the rules of every service on the corpus. An exception is a flaw, never a crash.

    Rules are tried as if they were enforced, because their mode may change.
    """
    return RuleIndex(policy.services).prove()


class RuleSet(NamedTuple):
    """A distinct set of rules, known by a digest. `size_bytes`: its length as JSON."""

    digest: bytes
    size_bytes: int


_DIGEST_BYTES = 16


class RuleIndex:
    """The distinct sets of rules of some services."""

    def __init__(self, services: Iterable[Service]) -> None:
        self.of_services: list[tuple[RuleSet, ...]] = []
        """The sets of each service."""
        self._owners: dict[RuleSet, list[_Owner]] = {}
        for index, service in enumerate(services):
            sets = []
            for owner in _list_owners(index, service):
                rules = _encoder.encode((owner.service.placement, owner.service.resources))
                found = RuleSet(blake2b(rules, digest_size=_DIGEST_BYTES).digest(), len(rules))
                self._owners.setdefault(found, []).append(owner)
                sets.append(found)
            self.of_services.append(tuple(sets))

    @property
    def sets(self) -> Sequence[RuleSet]:
        return list(self._owners)

    def prove(self) -> Proof:
        """Try all sets, or as many of them as may be proved."""
        chosen = choose_sets(self.sets)
        return Proof(tuple(self.find_flaws(chosen)), len(chosen), len(self._owners))

    def find_flaws(self, chosen: Iterable[RuleSet]) -> Iterator[Flaw]:
        """Yield the flaws of some sets."""
        trials = _Trials()
        for rules in chosen:
            owners = self._owners[rules]
            for (stanza, _), trouble in trials.find_failures(_enforce(owners[0].service)).items():
                for owner in owners:
                    yield Flaw(owner.place, stanza, f"{owner.variant}{trouble.reason}", trouble.remedy)


class _Owner(NamedTuple):
    """One set of rules of a service. `variant`: in words, whose Pods they are for; "" for the others."""

    place: int
    service: Service
    variant: str = ""


def _list_owners(index: int, service: Service) -> Iterable[_Owner]:
    """Return a service with its rules, and as it is for each of its variants."""
    placement = service.placement
    if placement is None or placement.shares is None:
        return [] if placement is None and service.resources is None else [_Owner(index, service)]
    found = [_Owner(index, msgspec.structs.replace(service, placement=msgspec.structs.replace(placement, shares=None)))]
    for variant in placement.shares.variants:
        merged = msgspec.structs.replace(service, placement=merge_variant(placement, variant))
        found.append(_Owner(index, merged, f"variant {variant.name}: "))
    return found


def _enforce(service: Service) -> Service:
    """Return a service with its rules enforced, without those that only the user can satisfy.

    They are bounds of the Pod from below, and ratios of limits that no default sets. The Namespace has all labels that
    the rules read.
    """
    service = service.resolve_namespace(dict.fromkeys(service.namespace_keys, "sample"))
    resources, plan = service.resources, service.range_plan
    if resources is not None and plan is not None:
        limited = {rule.name for rule in plan.rules if rule.limit or (rule.ratios.limit and rule.request)}
        pod, container = resources.pod, resources.container
        resources = msgspec.structs.replace(
            resources,
            pod=msgspec.structs.replace(
                pod, min={}, qos_classes=None, max_limit_request_ratio=_select(pod.max_limit_request_ratio, limited)
            ),
            container=msgspec.structs.replace(
                container, max_limit_request_ratio=_select(container.max_limit_request_ratio, limited)
            ),
        )
    return msgspec.structs.replace(service, resources=resources, modes=Modes())


def _select(ratios: Mapping[str, Quantity], names: Collection[str]) -> dict[str, Quantity]:
    return {name: ratio for name, ratio in ratios.items() if name in names}


def choose_sets(sets: Sequence[RuleSet]) -> Sequence[RuleSet]:
    """Return as many sets as may be proved, evenly spread, always with the first one."""
    chosen = _spread_evenly(sets, min(len(sets), SETS_MAX))
    size_bytes = sum(rules.size_bytes for rules in chosen)
    return (
        chosen
        if size_bytes <= RULES_BYTES_MAX
        else _spread_evenly(chosen, len(chosen) * RULES_BYTES_MAX // size_bytes or 1)
    )


def _spread_evenly(sets: Sequence[RuleSet], count: int) -> Sequence[RuleSet]:
    return [sets[place * len(sets) // count] for place in range(count)]


class _Trials:
    """Trials with a cache: samples for one stanza are tried once per stanza, however many services share it."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[RewriteFailure, ...]] = {}

    def find_failures(self, service: Service) -> dict[tuple[str, str], RewriteFailure]:
        """Return each kind of failure once, with its stanza."""
        alone = {
            stanza: msgspec.structs.replace(service, **{**dict.fromkeys(_STANZAS), stanza: rules})
            for stanza in _STANZAS
            if (rules := getattr(service, stanza)) is not None
        }
        found = [blamed for sample in CORPUS if not sample.stanza for blamed in _assign_blame(sample, service, alone)]
        found += [(stanza, trouble) for stanza in alone for trouble in self._try_stanza(stanza, alone[stanza])]
        first: dict[tuple[str, str], RewriteFailure] = {}
        for stanza, trouble in found:
            first.setdefault((stanza, trouble.kind), trouble)
        return first

    def _try_stanza(self, stanza: str, service: Service) -> tuple[RewriteFailure, ...]:
        rules = _encoder.encode((stanza, getattr(service, stanza)))
        if rules not in self._known:
            samples = (sample for sample in CORPUS if sample.stanza == stanza)
            self._known[rules] = tuple(found for sample in samples if (found := find_rewrite_failure(sample, service)))
        return self._known[rules]


def _assign_blame(sample: Sample, service: Service, alone: dict[str, Service]) -> Iterable[tuple[str, RewriteFailure]]:
    """Try both stanzas together, then each alone. A failure of only the combination is reported for the first."""
    together = find_rewrite_failure(sample, service)
    if together is None:
        return ()
    each = [
        (stanza, found)
        for stanza, reduced in alone.items()
        if (found := find_rewrite_failure(sample, reduced)) is not None
    ]
    return each or [(next(iter(alone)), together)]
