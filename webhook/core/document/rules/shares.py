"""Rules of `placement.shares`: variants that differ and get Pods, the base, and what works against the split."""

from collections.abc import Hashable, Iterator

import msgspec

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, suggest
from webhook.core.kubernetes.label_constraints import build_constraints
from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.placement.plan import DO_NOT_SCHEDULE, VARIANT_LABEL
from webhook.core.placement.required import REQUIRED
from webhook.core.policy_fields import Mode, OnConflict, Variant

UNSCHEDULABLE_SECONDS_MIN = 30
"""In less time a scheduler has often not tried a Pod again, and no autoscaler has made a node."""
_SHARES = ("placement", "shares")
_VARIANTS = (*_SHARES, "variants")
_SPREADS = ("placement", "topologySpreadConstraints", "*")
_NODE_TERMS = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", "*", "matchExpressions", "*", "key")


def variant_names_are_unique(service: DocumentPart) -> Iterator[Problem]:
    """`shares.variants[].name`: unique in its list. Refuse a repeated name."""
    first: dict[str, DocumentPart] = {}
    for name in service.select(*_VARIANTS, "*", "name"):
        text = name.read(str)
        if text in first:
            reason = f"the name is already used in line {first[text].node.line}"
            yield name.report(reason, "give each variant a unique name")
        first.setdefault(text, name)


def some_variant_has_a_weight(service: DocumentPart) -> Iterator[Problem]:
    """`shares.variants[].weight`: refuse variants without any: the Pods beyond the base would belong to none."""
    for variants in service.select(*_VARIANTS):
        if not any(variant.get("weight") for variant in variants.items()):
            reason = "none has a weight: the Pods beyond the base would belong to no variant"
            yield variants.report_field(reason, "give at least one a weight, such as weight: 1")


def the_base_is_a_variant(service: DocumentPart) -> Iterator[Problem]:
    """`shares.base.variant`: a name of `shares.variants`. Refuse another name."""
    for shares in service.select(*_SHARES):
        chosen, variants = shares.get("base", "variant"), shares.get("variants")
        if chosen is None or variants is None:
            continue
        names = [name.read(str) for name in variants.select("*", "name")]
        if chosen.read(str) not in names:
            yield chosen.report("no such variant", suggest(chosen.read(str), names, "variants has"))


def variants_differ(service: DocumentPart) -> Iterator[Problem]:
    """`shares.variants[]`: refuse two that ask for the same nodes: falling back to the other would change nothing."""
    first: dict[Hashable, DocumentPart] = {}
    for part in service.select(*_VARIANTS, "*"):
        variant = part.read(Variant)
        tolerations = sorted(map(_encode, variant.tolerations))
        earlier = first.setdefault(_encode((variant.node_selector, variant.affinity, tolerations)), part)
        if earlier is not part:
            reason = f"asks for the same nodes as the variant in line {earlier.node.key_line}"
            yield part.report_field(reason, "give it another nodeSelector, affinity or tolerations, or remove it")


_encode = msgspec.json.Encoder(enc_hook=str, order="deterministic").encode


def a_node_can_be_waited_for(service: DocumentPart) -> Iterator[Problem]:
    """`shares.unschedulableFor`: 30s or more. Refuse less: Pods would be evicted that only wait for a moment."""
    for part in service.select(*_SHARES, "unschedulableFor"):
        if part.read(Duration).us < UNSCHEDULABLE_SECONDS_MIN * 1_000_000:
            reason = f"shorter than {UNSCHEDULABLE_SECONDS_MIN}s: Pods would be evicted that only wait for a moment"
            yield part.report(reason, f"write {UNSCHEDULABLE_SECONDS_MIN}s or more")


def no_pod_is_selected_by_its_variant(service: DocumentPart) -> Iterator[Problem]:
    """`match.podSelector`: refuse a requirement on `podgate.io/variant`, which Podgate writes into matched Pods."""
    for selector in service.select("match", "podSelector"):
        if VARIANT_LABEL in build_constraints(selector.read(LabelSelector)):
            reason = f"it reads {VARIANT_LABEL}, which Podgate writes only after it has found the Pod's service"
            remedy = (
                "select by another label; spread constraints may count each variant alone, by"
                f" matchLabelKeys: [{VARIANT_LABEL}]"
            )
            yield selector.report_field(reason, remedy)


def only_enforced_placement_divides(service: DocumentPart) -> Iterator[Problem]:
    """`placement.shares`: warn if `modes.placement` is not Enforce: no Pod is divided then."""
    shares, mode = service.get(*_SHARES), service.get("modes", "placement")
    if shares is None or mode is None or mode.read(Mode) is Mode.ENFORCE:
        return
    reason = f"has no effect: only enforced placement divides Pods, and modes.placement is {mode.read(Mode)}"
    yield shares.report_field(reason, "write modes.placement: Enforce, or expect that")


def each_variant_gets_pods(service: DocumentPart) -> Iterator[Problem]:
    """`shares.variants[]`: warn about one without a weight that is neither the base nor after one that gets Pods.

    Pods fall back to variants below their own only.
    """
    for shares in service.select(*_SHARES):
        base = shares.get("base", "variant")
        chosen = None if base is None else base.read(str)
        for variant in shares.select("variants", "*"):
            name = variant.get("name")
            if variant.get("weight") is not None or (name is not None and name.read(str) == chosen):
                break
            reason = "never gets a Pod: it has no weight, is not the base, and no Pod falls back upwards"
            yield variant.report_field(reason, "give it a weight, or move it below the variants that it replaces")


def no_pod_keeps_another_variants_nodes(service: DocumentPart) -> Iterator[Problem]:
    """`onConflict.nodeSelector`: warn about Keep beside variants with a `nodeSelector`, of which a Pod could choose."""
    for placement in service.select("placement"):
        rule = placement.get("onConflict", "nodeSelector") or placement.get("onConflict", "default")
        if rule is None or rule.read(str) != OnConflict.KEEP:
            continue
        if any(not part.is_empty for part in placement.select("shares", "variants", "*", "nodeSelector")):
            reason = "a Pod that brings another value of a variant's nodeSelector keeps it, and the split is not exact"
            yield rule.report(reason, "write onConflict: {nodeSelector: Deny} or Override")


def spreads_follow_the_variants(service: DocumentPart) -> Iterator[Problem]:
    """`topologySpreadConstraints` with DoNotSchedule, beside `shares`: what keeps Pods Pending, or bends the split.

    Warn about an absent `nodeTaintsPolicy: Honor`, and about a `topologyKey` by which variants choose nodes, unless
    `matchLabelKeys` has `podgate.io/variant`.
    """
    for placement in service.select("placement"):
        variants = placement.select("shares", "variants", "*")
        if not variants:
            continue
        keys = {key for part in variants for selector in part.select("nodeSelector") for key in selector.fields()}
        keys |= {part.read(str) for variant in variants for part in variant.select(*_NODE_TERMS)}
        for spread in service.select(*_SPREADS):
            yield from stop_at_invalid(_check_spread(spread, keys))


def _check_spread(spread: DocumentPart, divided_by: set[str]) -> Iterator[Problem]:
    action, key = spread.get("whenUnsatisfiable"), spread.get("topologyKey")
    if action is None or key is None or action.read(str) != DO_NOT_SCHEDULE:
        return
    policy, own = spread.get("nodeTaintsPolicy"), spread.get("matchLabelKeys")
    if policy is None or policy.read(str) != "Honor":
        reason = (
            "Pods stay Pending for the sake of nodes that are tainted, as nodes of a variant that is gone often are"
        )
        remedy = "write nodeTaintsPolicy: Honor"
        yield (
            spread.report_missing("nodeTaintsPolicy", reason, remedy)
            if policy is None
            else policy.report(reason, remedy)
        )
    if key.read(str) in divided_by and (own is None or VARIANT_LABEL not in own.read(list[str])):
        reason = "variants divide by this label, and a spread over it allows nearly equal parts only"
        yield key.report(reason, f"remove the constraint, or add matchLabelKeys: [{VARIANT_LABEL}]")
