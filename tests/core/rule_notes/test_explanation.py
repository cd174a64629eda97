"""The explanation of a rewrite covers all changes, and nothing else."""

from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.rule_notes.explanation import decode_pod, rewrite_pod
from tests.core.strategies import HASH, Json, Pair, class_pairs, examples, pairs, service_of
from webhook.core import container_resources, placement
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_fields import Mode, ResourceRules
from webhook.core.rule_notes import Act, Note, explain, find_changes

ZONE = "topology.kubernetes.io/zone"
FEW_EXAMPLES = examples(40)  # each example explains a Pod once for each entry of its policy


def list_marked_places(notes: tuple[Note, ...]) -> set[tuple[str, bool]]:
    return {(mark.pointer, mark.is_removal) for note in notes for mark in note.marks}


def list_changed_places(before: Json, after: Json) -> set[tuple[str, bool]]:
    return {(at, change.after is None) for change in find_changes(before, after) for at, _ in change.pieces}


@FEW_EXAMPLES
@given(pairs | class_pairs)
def test_notes_cover_exactly_the_changes(pair: Pair) -> None:
    notes = explain(pair.pod, pair.service, HASH)
    assert list_marked_places(notes) == list_changed_places(pair.pod, rewrite_pod(pair.pod, pair.service))


@FEW_EXAMPLES
@given(pairs)
def test_notes_have_the_violations_of_the_rewritten_pod(pair: Pair) -> None:
    notes = explain(pair.pod, pair.service, HASH)
    final = decode_pod(rewrite_pod(pair.pod, pair.service))
    plan = pair.service.placement_plan
    violations = [] if plan is None else placement.find_violations(final, plan)
    assert any(note.owed for note in notes) == bool(violations)
    assert {violation.code for note in notes for violation in note.owed} == {violation.code for violation in violations}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu", "hugepages-2Mi"]), st.sampled_from(["1", "2", "5", "9"])
)
RATIOS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "1.5"]))
SHARES = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["0.5", "0.9"]))
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["c", "istio-proxy"])},
    optional={"resources": st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})},
)


def leave_out_contradictions(rules: Json) -> Json:
    """Return rules without the amounts that give or require the limits of cpu which they take out or forbid."""
    of_containers = rules.get("container", {})
    if not of_containers.keys() & {"remove", "forbid"}:
        return rules
    asked = {"default", "max", "maxLimitRequestRatio", "defaultLimitRatio", "defaultRequestRatio"}
    kept = {key: value for key, value in of_containers.items() if key != "forbid" or "remove" not in of_containers}
    return {
        stanza: {
            key: {name: amount for name, amount in value.items() if name != "cpu"} if key in asked else value
            for key, value in fields.items()
        }
        if isinstance(fields, dict)
        else fields
        for stanza, fields in {**rules, "container": kept}.items()
    }


RULES = st.fixed_dictionaries(
    {"whenOutside": st.sampled_from(["Clamp", "Deny"])},
    optional={
        "container": st.fixed_dictionaries(
            {"ignore": st.just(["istio-*"])},
            optional=dict.fromkeys(["defaultRequest", "default", "min", "max"], AMOUNTS)
            | dict.fromkeys(["remove", "forbid"], st.just(["limits.cpu"]))
            | {"maxLimitRequestRatio": RATIOS, "defaultLimitRatio": RATIOS, "defaultRequestRatio": SHARES},
        ),
        "initContainer": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(["defaultRequest", "default", "min", "max"], AMOUNTS)
        ),
        "pod": st.fixed_dictionaries(
            {},
            optional={
                "min": AMOUNTS,
                "max": AMOUNTS,
                "maxLimitRequestRatio": RATIOS,
                "qosClasses": st.sampled_from([["Guaranteed"], ["Burstable", "BestEffort"]]),
            },
        ),
    },
).map(leave_out_contradictions)


ENFORCED = Modes()


def service_with_rules(rules: Json, modes: Modes = ENFORCED) -> Service:
    resources = msgspec.convert(rules, ResourceRules, dec_hook=lambda _, text: Quantity.parse(text))
    return Service("s", Match(any_namespace=True), modes=modes, resources=resources)


def build_pod(*containers: Json, **spec: Any) -> Json:
    return {"metadata": {}, "spec": {"containers": list(containers), **spec}}


RAISED: Json = {
    "ignore": ["istio-*"],
    "default": {"cpu": "1"},
    "defaultRequestRatio": {"cpu": "0.5"},
    "min": {"cpu": "1"},
}


@FEW_EXAMPLES
@given(st.lists(CONTAINER, max_size=2), RULES, st.none() | AMOUNTS)
@example([{"name": "c"}], {"whenOutside": "Clamp", "container": RAISED}, None)
def test_notes_cover_exactly_the_changes_of_resources(
    containers: list[Json], rules: Json, pod_requests: Json | None
) -> None:
    service = service_with_rules(rules)
    document = build_pod(*containers[:1], initContainers=containers[1:])
    document["spec"] |= {} if pod_requests is None else {"resources": {"requests": pod_requests}}
    notes = explain(document, service, HASH)
    after = rewrite_pod(document, service)
    assert list_marked_places(notes) == list_changed_places(document, after)
    plan = service.range_plan
    assert plan is not None
    violations = container_resources.find_violations(decode_pod(after), plan)
    assert any(note.owed for note in notes) == bool(violations)


DENY: Json = {}
KEEP, OVERRIDE = {"onConflict": {"default": "Keep"}}, {"onConflict": {"default": "Override"}}
LEFT = "the validating half denies it (onConflict Deny)"
IN_B = {"key": ZONE, "operator": "In", "values": ["b"]}
EXISTS = {"key": "gpu", "operator": "Exists"}
IN_B_OR_G = {"topology": [{"level": "Zone", "in": ["b", "g"]}]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}
POD_TERM = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
ANTI_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM]}}
MANAGED = {"managedFields": [{"fieldsV1": {"f:spec": {"f:containers": {}}}}]}


def terms(*expressions: list[Json]) -> Json:
    found = {"nodeSelectorTerms": [{"matchExpressions": some} for some in expressions]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": found}}}


# The placement of the policy, the spec of the Pod, the rule, its act, and its reason.
CASES: dict[str, tuple[Json, Json, str, Act, str]] = {
    "absent": ({"schedulerName": "ours"}, {}, "schedulerName", Act.WROTE, ""),
    "equal": ({"schedulerName": "ours"}, {"schedulerName": "ours"}, "schedulerName", Act.NOTHING, "already so"),
    "defaulted": (
        {"schedulerName": "ours"},
        {"schedulerName": "default-scheduler"},
        "schedulerName",
        Act.WROTE,
        "default-scheduler is only the default, no conflict",
    ),
    "denied": ({"schedulerName": "ours"}, {"schedulerName": "x"}, "schedulerName", Act.LEFT, f"left x: {LEFT}"),
    "kept": (
        {"priorityClassName": "high", **KEEP},
        {"priorityClassName": "low"},
        "priorityClassName",
        Act.NOTHING,
        "kept the Pod's own low (onConflict Keep)",
    ),
    "overridden": (
        {"runtimeClassName": "gvisor", **OVERRIDE},
        {"runtimeClassName": "kata"},
        "runtimeClassName",
        Act.WROTE,
        "overrides kata (onConflict Override)",
    ),
    "an absent label": ({"nodeSelector": {"disk": "ssd"}}, {}, "nodeSelector[disk]", Act.WROTE, ""),
    "an equal label": (
        {"nodeSelector": {"disk": "ssd"}},
        {"nodeSelector": {"disk": "ssd"}},
        "nodeSelector[disk]",
        Act.NOTHING,
        "already so",
    ),
    "a label that is denied": (
        {"nodeSelector": {"disk": "ssd"}},
        {"nodeSelector": {"disk": "hdd"}},
        "nodeSelector[disk]",
        Act.LEFT,
        f"left hdd: {LEFT}",
    ),
    "a label that is kept": (
        {"nodeSelector": {"disk": "ssd"}, **KEEP},
        {"nodeSelector": {"disk": "hdd"}},
        "nodeSelector[disk]",
        Act.NOTHING,
        "kept the Pod's own hdd (onConflict Keep)",
    ),
    "a label that is overridden": (
        {"nodeSelector": {"disk": "ssd"}, **OVERRIDE},
        {"nodeSelector": {"disk": "hdd"}},
        "nodeSelector[disk]",
        Act.WROTE,
        "overrides hdd (onConflict Override)",
    ),
    "no terms": (IN_B_OR_G, {}, "topology[0]", Act.WROTE, ""),
    "one term": (IN_B_OR_G, terms([EXISTS]), "topology[0]", Act.WROTE, "ANDed into the term"),
    "two terms": (IN_B_OR_G, terms([EXISTS], [EXISTS]), "topology[0]", Act.WROTE, "ANDed into every term"),
    "one of two terms": (
        IN_B_OR_G,
        terms([EXISTS], [IN_B]),
        "topology[0]",
        Act.WROTE,
        "ANDed into 1 of 2 terms, the others need nothing",
    ),
    "an implied zone": (IN_B_OR_G, terms([IN_B]), "topology[0]", Act.NOTHING, f"implied by {ZONE} In [b]"),
    "terms that fit no node": (
        IN_B_OR_G,
        terms([IN_B, {**IN_B, "operator": "NotIn"}]),
        "topology[0]",
        Act.NOTHING,
        "left: no node fits the Pod's own required node affinity",
    ),
    "two entries on one label": (
        {"topology": [*IN_B_OR_G["topology"], {"level": "Zone", "in": ["b"]}]},
        {},
        "topology[0] and topology[1]",
        Act.WROTE,
        "",
    ),
    "native terms that say more": (
        {**IN_B_OR_G, **terms([IN_B])},
        {},
        "topology[0]",
        Act.NOTHING,
        f"implied by {ZONE} In [b]",
    ),
    "a preferred topology": (
        {"topology": [{"level": "Zone", "in": ["b"], "preferredWeight": 1}]},
        {},
        "topology[0]",
        Act.WROTE,
        "",
    ),
    "a pod anti-affinity": ({"affinity": ANTI_AFFINITY}, {}, "affinity.podAntiAffinity.required[0]", Act.WROTE, ""),
    "a pod anti-affinity that is present": (
        {"affinity": ANTI_AFFINITY},
        {"affinity": ANTI_AFFINITY},
        "affinity.podAntiAffinity.required[0]",
        Act.NOTHING,
        "already so",
    ),
    "a spread": ({"topologySpreadConstraints": [SPREAD]}, {}, "topologySpreadConstraints[0]", Act.WROTE, ""),
    "a spread that means the same": (
        {"topologySpreadConstraints": [SPREAD]},
        {"topologySpreadConstraints": [{**SPREAD, "minDomains": 1}]},
        "topologySpreadConstraints[0]",
        Act.NOTHING,
        "already so",
    ),
    "a spread that differs": (
        {"topologySpreadConstraints": [SPREAD]},
        {"topologySpreadConstraints": [{**SPREAD, "maxSkew": 5}]},
        "topologySpreadConstraints[0]",
        Act.LEFT,
        f"left: {LEFT}",
    ),
    "a spread that is kept": (
        {"topologySpreadConstraints": [SPREAD], **KEEP},
        {"topologySpreadConstraints": [{**SPREAD, "maxSkew": 5}]},
        "topologySpreadConstraints[0]",
        Act.NOTHING,
        "kept the Pod's own (onConflict Keep)",
    ),
    "a spread that is overridden": (
        {"topologySpreadConstraints": [SPREAD], **OVERRIDE},
        {"topologySpreadConstraints": [{**SPREAD, "maxSkew": 5}]},
        "topologySpreadConstraints[0]",
        Act.WROTE,
        "overrides the Pod's own (onConflict Override)",
    ),
    "a spread where there was an empty list": (
        {"topologySpreadConstraints": [SPREAD]},
        {"topologySpreadConstraints": []},
        "topologySpreadConstraints[0]",
        Act.WROTE,
        "",
    ),
    "a label where there was null": (
        {"nodeSelector": {"disk": "ssd"}},
        {"nodeSelector": None},
        "nodeSelector[disk]",
        Act.WROTE,
        "",
    ),
    "a toleration": ({"tolerations": [TOLERATION]}, {}, "tolerations[0]", Act.WROTE, ""),
    "a toleration that is present": (
        {"tolerations": [TOLERATION]},
        {"tolerations": [TOLERATION]},
        "tolerations[0]",
        Act.NOTHING,
        "already so",
    ),
    "a toleration of everything": (
        {"tolerations": [TOLERATION]},
        {"tolerations": [{"operator": "Exists"}]},
        "tolerations[0]",
        Act.NOTHING,
        "covered by * Exists:*",
    ),
    "a toleration that another of the policy covers": (
        {"tolerations": [TOLERATION, {"key": "dedicated", "operator": "Exists"}]},
        {},
        "tolerations[0]",
        Act.NOTHING,
        "covered by dedicated Exists:*",
    ),
    "a toleration that must come first": (
        {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 600}]},
        {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]},
        "tolerations[0]",
        Act.WROTE,
        "goes before a shorter one: the first that fits a taint decides when to evict",
    ),
}


def note_of(notes: tuple[Note, ...], rule: str) -> Note:
    (found,) = [note for note in notes if note.rule == rule]
    return found


@pytest.mark.parametrize(("policy", "spec", "rule", "act", "words"), CASES.values(), ids=CASES)
def test_note_of_a_placement_rule_has_act_and_reason(policy: Json, spec: Json, rule: str, act: Act, words: str) -> None:
    notes = explain({"metadata": {}, "spec": spec}, service_of(policy), HASH)
    note = note_of(notes, f"placement.{rule}")
    assert (note.act, note.words) == (act, words)
    assert bool(note.marks) == (act is Act.WROTE)
    assert bool(note.owed) == (act is Act.LEFT)


def test_global_default_class_is_no_conflict_and_its_computed_fields_are_removed() -> None:
    spec = {"priorityClassName": "default", "priority": 7, "preemptionPolicy": "Never"}
    note = note_of(
        explain({"metadata": MANAGED, "spec": spec}, service_of({"priorityClassName": "high"}), HASH),
        "placement.priorityClassName",
    )
    assert (note.act, note.words) == (Act.WROTE, "default is only the default, no conflict")
    assert [(mark.pointer, mark.is_removal) for mark in note.marks] == [
        ("/spec/priority", True),
        ("/spec/preemptionPolicy", True),
        ("/spec/priorityClassName", False),
    ]
    assert {mark.words for mark in note.marks if mark.is_removal} == {
        "belongs to the former class, the API server sets it again"
    }


def test_pointer_of_a_mark_resolves_to_the_written_value() -> None:
    document = {"metadata": {}, "spec": terms([EXISTS], [EXISTS])}
    service = service_of({**IN_B_OR_G, "tolerations": [{"key": "k", "operator": "Exists"}]})
    notes, after = explain(document, service, HASH), rewrite_pod(document, service)
    expected = {
        "placement.topology[0]": {**IN_B, "values": ["b", "g"]},
        "placement.tolerations[0]": {"key": "k", "operator": "Exists"},
    }
    for rule, value in expected.items():
        for mark in note_of(notes, rule).marks:
            assert jsonpatch.JsonPointer(mark.pointer).resolve(after) == value


@pytest.mark.parametrize(
    ("mode", "spec", "act", "words"),
    [
        (Mode.WARN, {}, Act.IDLE, "mode Warn: not acted on, would write spec.nodeSelector[disk]"),
        (Mode.AUDIT, {}, Act.IDLE, "mode Audit: not acted on, would write spec.nodeSelector[disk]"),
        (Mode.DISABLED, {}, Act.IDLE, "mode Disabled: not evaluated"),
        (Mode.WARN, {"nodeSelector": {"disk": "ssd"}}, Act.NOTHING, "already so"),
        (
            Mode.WARN,
            {"nodeSelector": {"disk": "hdd"}},
            Act.LEFT,
            "left hdd: the validating half warns of it (onConflict Deny)",
        ),
    ],
)
def test_note_of_a_rule_that_is_not_enforced_has_the_mode(mode: Mode, spec: Json, act: Act, words: str) -> None:
    service = service_of({"nodeSelector": {"disk": "ssd"}}, modes=Modes(placement=mode))
    note = note_of(explain({"metadata": {}, "spec": spec}, service, HASH), "placement.nodeSelector[disk]")
    assert (note.act, note.words, note.marks) == (act, words, ())
    assert note.is_checked == (mode is not Mode.DISABLED)


def test_label_and_annotation_have_marks_unless_all_modes_are_disabled() -> None:
    forged = {"metadata": {"labels": {"podgate.io/service": "other"}}, "spec": {}}
    (note,) = explain(forged, service_of({}), HASH)
    assert [(mark.pointer, mark.words) for mark in note.marks] == [
        ("/metadata/labels/podgate.io~1service", "the service of the Pod, overrides what the Pod had"),
        ("/metadata/annotations/podgate.io~1policy-hash", "the policy that rewrote it"),
    ]
    disabled = Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED)
    (note,) = explain(forged, service_of({}, modes=disabled), HASH)
    assert (note.act, note.marks) == (Act.IDLE, ())


REQUESTS_9_CPU = {"name": "c", "resources": {"requests": {"cpu": "9"}}}
MIN_CPU, MAX_CPU = {"min": {"cpu": "100m"}}, {"max": {"cpu": "8"}}


@pytest.mark.parametrize(
    ("rules", "container", "rule", "act", "words"),
    [
        ({"container": {"default": {"memory": "1Gi"}}}, {}, "container.default[memory]", Act.WROTE, ""),
        ({"container": {"defaultRequest": {"cpu": "1"}}}, {}, "container.defaultRequest[cpu]", Act.WROTE, ""),
        (
            {"container": {"default": {"cpu": "1"}}},
            REQUESTS_9_CPU,
            "container.default[cpu]",
            Act.WROTE,
            "as much as the container's own request",
        ),
        (
            {"container": {"default": {"cpu": "1"}}},
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
            "container.default[cpu]",
            Act.NOTHING,
            "nothing lacks it",
        ),
        (
            {"container": {"default": {"cpu": "1"}}},
            {"name": "c", "resources": {"limits": {"cpu": "2"}}},
            "container.default[cpu]",
            Act.WROTE,
            "as much as its limit",
        ),
        (
            {"container": MAX_CPU},
            {},
            "container.max[cpu]",
            Act.WROTE,
            "bounds what has no limit; as much as its limit, which is max",
        ),
        (
            {"container": MAX_CPU, "whenOutside": "Clamp"},
            {"name": "c", "resources": {"limits": {"cpu": "9"}}},
            "container.max[cpu]",
            Act.WROTE,
            "lowered from 9 (whenOutside Clamp); as much as its limit, which is max",
        ),
        ({"container": MIN_CPU}, {}, "container.min[cpu]", Act.WROTE, "the least that is allowed"),
        (
            {"container": MAX_CPU, "whenOutside": "Clamp"},
            REQUESTS_9_CPU,
            "container.max[cpu]",
            Act.WROTE,
            "lowered from 9 (whenOutside Clamp); bounds what has no limit",
        ),
        (
            {"container": {**MAX_CPU, "default": {"cpu": "8"}}},
            REQUESTS_9_CPU,
            "container.max[cpu]",
            Act.LEFT,
            "left: the validating half denies it (whenOutside Deny)",
        ),
        ({"pod": MAX_CPU}, REQUESTS_9_CPU, "pod.max[cpu]", Act.LEFT, "left: the validating half denies it"),
        ({"pod": MAX_CPU}, {}, "pod.max[cpu]", Act.NOTHING, "all is within"),
        (
            {"container": {"defaultRequestRatio": {"cpu": "0.5"}, "default": {"cpu": "2"}}},
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}},
            "container.defaultRequestRatio[cpu]",
            Act.WROTE,
            "0.5 of its limit, was 1, as much as its limit",
        ),
        (
            {"container": {"defaultRequestRatio": {"cpu": "0.5"}, "default": {"cpu": "2"}}},
            {},
            "container.defaultRequestRatio[cpu]",
            Act.WROTE,
            "0.5 of its limit",
        ),
        (
            {"container": {"defaultRequestRatio": {"cpu": "0.5"}, "default": {"cpu": "9"}}},
            REQUESTS_9_CPU,
            "container.defaultRequestRatio[cpu]",
            Act.NOTHING,
            "nothing lacks it",
        ),
        (
            {"container": {"defaultRequestRatio": {"cpu": "0.5"}, "default": {"cpu": "2"}}},
            REQUESTS_9_CPU,
            "container.default[cpu]",
            Act.WROTE,
            "as much as the container's own request",
        ),
        (
            {"container": {"defaultLimitRatio": {"cpu": "2"}}},
            REQUESTS_9_CPU,
            "container.defaultLimitRatio[cpu]",
            Act.WROTE,
            "2 times the request",
        ),
        (
            {"container": {"maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "20"}}},
            REQUESTS_9_CPU,
            "container.maxLimitRequestRatio[cpu]",
            Act.WROTE,
            "at most 2 times the request",
        ),
        (
            {"container": {"maxLimitRequestRatio": {"cpu": "2"}}, "whenOutside": "Clamp"},
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}},
            "container.maxLimitRequestRatio[cpu]",
            Act.WROTE,
            "raised from 1, the limit is at most 2 times it (whenOutside Clamp)",
        ),
        (
            {"pod": {"qosClasses": ["Guaranteed"]}},
            REQUESTS_9_CPU,
            "pod.qosClasses",
            Act.LEFT,
            "left: the validating half denies it",
        ),
        (
            {"container": {"default": {"cpu": "1"}, "ignore": ["istio-*"]}},
            {"name": "istio-proxy"},
            "container.ignore",
            Act.NOTHING,
            "leaves istio-proxy alone",
        ),
    ],
)
def test_note_of_a_resource_rule_has_act_and_reason(
    rules: Json, container: Json, rule: str, act: Act, words: str
) -> None:
    note = note_of(explain(build_pod({"name": "c", **container}), service_with_rules(rules), HASH), f"resources.{rule}")
    assert (note.act, note.words) == (act, words)


def test_note_of_a_rule_with_several_effects_has_all_reasons() -> None:
    rules = service_with_rules({"container": {"default": {"cpu": "1"}}})
    note = note_of(explain(build_pod({"name": "a"}, REQUESTS_9_CPU), rules, HASH), "resources.container.default[cpu]")
    assert note.words == "set; as much as the container's own request"


def test_unreadable_amount_is_ignored_if_resources_are_disabled() -> None:
    unreadable = build_pod({"name": "c", "resources": {"requests": {"cpu": "a lot"}}})
    rules: Json = {"container": {"max": {"cpu": "1"}}}
    resources = service_with_rules(rules).resources
    service = service_of({"nodeSelector": {"a": "b"}}, resources=resources, modes=Modes(resources=Mode.DISABLED))
    notes = explain(unreadable, service, HASH)
    assert note_of(notes, "placement.nodeSelector[a]").act is Act.WROTE
    assert note_of(notes, "resources.container.max[cpu]").words == "mode Disabled: not evaluated"


def test_resource_rule_that_is_not_enforced_has_no_marks() -> None:
    rules = {"container": {**MAX_CPU, "default": {"cpu": "8"}}}
    notes = explain(build_pod(REQUESTS_9_CPU), service_with_rules(rules, Modes(resources=Mode.WARN)), HASH)
    note = note_of(notes, "resources.container.default[cpu]")
    assert (note.act, note.marks) == (Act.IDLE, ())
    assert note.words == 'mode Warn: not acted on, would write container "c": limits.cpu'


def test_note_reports_a_change_of_the_qos_class() -> None:
    rules = {"container": {"default": {"cpu": "1", "memory": "1Gi"}}}
    note = note_of(explain(build_pod({"name": "c"}), service_with_rules(rules), HASH), "resources")
    assert note.words == "the Pod's QoS class becomes Guaranteed, it was BestEffort"
    only_warned = explain(build_pod({"name": "c"}), service_with_rules(rules, Modes(resources=Mode.WARN)), HASH)
    assert "resources" not in {note.rule for note in only_warned}


@pytest.mark.parametrize(
    "resources", [{}, {"requests": {"cpu": "9"}}, {"limits": {"cpu": "2"}}, {"limits": {"cpu": "9"}}]
)
@pytest.mark.parametrize("when_outside", ["Deny", "Clamp"])
@pytest.mark.parametrize("words", [("min", "max"), ("default", "max"), ("min", "default"), ("min", "default", "max")])
def test_each_amount_is_marked_by_one_rule(words: tuple[str, ...], when_outside: str, resources: Json) -> None:
    amounts = {"min": {"cpu": "1"}, "default": {"cpu": "2"}, "max": {"cpu": "8"}}
    rules = {"container": {word: amounts[word] for word in words}, "whenOutside": when_outside}
    notes = explain(build_pod({"name": "c", "resources": resources}), service_with_rules(rules), HASH)
    marks = [mark.pointer for note in notes for mark in note.marks if note.rule.startswith("resources.")]
    assert len(marks) == len(set(marks))
    least = note_of(notes, f"resources.container.{words[0]}[cpu]")
    assert words[0] != "min" or all("/requests/" in mark.pointer for mark in least.marks)


@pytest.mark.parametrize(
    ("words", "resources", "rule", "reason"),
    [
        (("min", "default", "max"), {"limits": {"cpu": "4"}}, "default", "as much as its limit"),
        (("min", "max"), {"limits": {"cpu": "4"}}, "min", "as much as its limit"),
        (("min", "default"), {}, "default", "set"),
    ],
)
def test_deciding_rule_has_the_reason(words: tuple[str, ...], resources: Json, rule: str, reason: str) -> None:
    amounts = {"min": {"cpu": "1"}, "default": {"cpu": "2"}, "max": {"cpu": "8"}}
    rules = {"container": {word: amounts[word] for word in words}}
    notes = explain(build_pod({"name": "c", "resources": resources}), service_with_rules(rules), HASH)
    assert [note.rule for note in notes if note.marks][1:2] == [f"resources.container.{rule}[cpu]"]
    assert note_of(notes, f"resources.container.{rule}[cpu]").words == (reason if reason != "set" else "")


def test_amount_that_needs_several_rules_is_marked_by_the_first() -> None:
    """Huge pages need cpu or memory in the container, and a default of limit or request sets both."""
    words = {"default": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "defaultRequest": {"hugepages-2Mi": "2Mi"}}
    notes = explain(build_pod({"name": "c"}), service_with_rules({"container": words}), HASH)
    for rule, side in (("default", "limits"), ("defaultRequest", "requests")):
        (mark,) = note_of(notes, f"resources.container.{rule}[hugepages-2Mi]").marks
        assert mark.pointer == f"/spec/containers/0/resources/{side}/hugepages-2Mi"


def test_explanation_does_not_change_the_document() -> None:
    document = build_pod({"name": "c"}, **terms([EXISTS]))
    before = msgspec.json.encode(document)
    explain(document, service_of(IN_B_OR_G), HASH)
    assert msgspec.json.encode(document) == before


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("/a", "/a")]),
        ({"a": 1, "b": 2}, {"b": 2}, [("/a", None)]),
        ({"b": 1}, {"b": 1, "a": {"b": 1}}, [(None, "/a")]),
        ({"a": [1, 2]}, {"a": [0, 1, 2]}, [(None, "/a/0")]),
        ({"a": [1, 2]}, {"a": [1]}, [("/a/1", None)]),
        ({"a": [{"x": 1}]}, {"a": [{"x": 2}, 3]}, [("/a/0/x", "/a/0/x"), (None, "/a/1")]),
        ({"a": None}, {"a": {}}, [("/a", "/a")]),
        ({"a": {}}, {"a": {"b": 1}}, [("/a", "/a")]),
        ({"a": [1]}, {"a": []}, [("/a", "/a")]),
        ({"a": [{}]}, {"a": [{"x": 1}, {}]}, [(None, "/a/0")]),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3, "x": 1}}, [("/a", "/a")]),
        ({"a/b~": 1}, {"a/b~": 2}, [("/a~1b~0", "/a~1b~0")]),
    ],
)
def test_changes_have_the_pointers_of_differences(before: Json, after: Json, expected: list[tuple[str, str]]) -> None:
    assert [(change.before, change.after) for change in find_changes(before, after)] == expected
