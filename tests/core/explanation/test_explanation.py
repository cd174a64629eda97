"""The explanation of a rewrite covers all changes, and nothing else."""

from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import HASH, Json, Pair, examples, pairs, service_of
from webhook.core import container_resources, placement
from webhook.core.admission.mutation import rewrite
from webhook.core.explanation import Act, Note, changes, explain
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_spec import Mode, ResourceRules

ZONE = "topology.kubernetes.io/zone"
FEWER = examples(40)  # each explains a Pod by every entry of its policy alone


def decoded(document: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def rewritten(document: Json, service: Service) -> Any:
    operations = msgspec.to_builtins(rewrite(decoded(document), service, HASH))
    copy = msgspec.json.decode(msgspec.json.encode(document))
    return msgspec.json.decode(msgspec.json.encode(jsonpatch.apply_patch(copy, operations, in_place=True)))


def told_places(notes: tuple[Note, ...]) -> set[tuple[str, bool]]:
    return {(mark.pointer, mark.is_removal) for note in notes for mark in note.marks}


def changed_places(before: Json, after: Json) -> set[tuple[str, bool]]:
    return {(at, change.after is None) for change in changes(before, after) for at, _ in change.pieces}


@FEWER
@given(pairs)
def test_every_change_of_the_placement_is_reported_and_nothing_else(pair: Pair) -> None:
    notes = explain(pair.pod, pair.service, HASH)
    assert told_places(notes) == changed_places(pair.pod, rewritten(pair.pod, pair.service))


@FEWER
@given(pairs)
def test_what_is_owed_in_the_end_is_reported_where_the_check_finds_it(pair: Pair) -> None:
    notes = explain(pair.pod, pair.service, HASH)
    final = decoded(rewritten(pair.pod, pair.service))
    plan = pair.service.placement_plan
    lacks = [] if plan is None else placement.violations(final, plan)
    assert any(note.owed for note in notes) == bool(lacks)
    assert {lack.code for note in notes for lack in note.owed} == {lack.code for lack in lacks}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu", "hugepages-2Mi"]), st.sampled_from(["1", "2", "5", "9"])
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["c", "istio-proxy"])},
    optional={"resources": st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})},
)
RULES = st.fixed_dictionaries(
    {"whenOutside": st.sampled_from(["Clamp", "Deny"])},
    optional={
        "container": st.fixed_dictionaries(
            {"ignore": st.just(["istio-*"])},
            optional=dict.fromkeys(["defaultRequest", "default", "min", "max"], AMOUNTS),
        ),
        "pod": st.fixed_dictionaries({}, optional={"min": AMOUNTS, "max": AMOUNTS}),
    },
)


ENFORCED = Modes()


def ruled(rules: Json, modes: Modes = ENFORCED) -> Service:
    resources = msgspec.convert(rules, ResourceRules, dec_hook=lambda _, text: Quantity.parse(text))
    return Service("s", Match(any_namespace=True), modes=modes, resources=resources)


def asking(*containers: Json, **spec: Any) -> Json:
    return {"metadata": {}, "spec": {"containers": list(containers), **spec}}


@FEWER
@given(st.lists(CONTAINER, max_size=2), RULES, st.none() | AMOUNTS)
def test_every_change_of_the_resources_is_reported_and_nothing_else(
    containers: list[Json], rules: Json, whole: Json | None
) -> None:
    service = ruled(rules)
    document = asking(*containers, **({} if whole is None else {"resources": {"requests": whole}}))
    notes = explain(document, service, HASH)
    after = rewritten(document, service)
    assert told_places(notes) == changed_places(document, after)
    plan = service.range_plan
    assert plan is not None
    lacks = container_resources.violations(decoded(after), plan)
    assert any(note.owed for note in notes) == bool(lacks)


DENY: Json = {}
KEEP, OVERRIDE = {"onConflict": {"default": "Keep"}}, {"onConflict": {"default": "Override"}}
LEFT = "the validating half denies it (onConflict Deny)"
IN_B = {"key": ZONE, "operator": "In", "values": ["b"]}
EXISTS = {"key": "gpu", "operator": "Exists"}
IN_B_OR_G = {"topology": [{"level": "Zone", "in": ["b", "g"]}]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}
NEAR = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
AWAY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]}}
MANAGED = {"managedFields": [{"fieldsV1": {"f:spec": {"f:containers": {}}}}]}


def terms(*expressions: list[Json]) -> Json:
    found = {"nodeSelectorTerms": [{"matchExpressions": some} for some in expressions]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": found}}}


# The policy's placement, the Pod's own fields, which rule, what it did, and why.
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
    "a label that is free": ({"nodeSelector": {"disk": "ssd"}}, {}, "nodeSelector[disk]", Act.WROTE, ""),
    "a label that is so": (
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
    "a wish": (
        {"topology": [{"level": "Zone", "in": ["b"], "preferredWeight": 1}]},
        {},
        "topology[0]",
        Act.WROTE,
        "",
    ),
    "neighbours": ({"affinity": AWAY}, {}, "affinity.podAntiAffinity.required[0]", Act.WROTE, ""),
    "neighbours that are there": (
        {"affinity": AWAY},
        {"affinity": AWAY},
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
    "a toleration that is there": (
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
        "goes first, for the first that fits a taint decides when to evict",
    ),
}


def noted(notes: tuple[Note, ...], rule: str) -> Note:
    (found,) = [note for note in notes if note.rule == rule]
    return found


@pytest.mark.parametrize(("policy", "spec", "rule", "act", "words"), CASES.values(), ids=CASES)
def test_each_outcome_is_reported_with_its_reason(policy: Json, spec: Json, rule: str, act: Act, words: str) -> None:
    notes = explain({"metadata": {}, "spec": spec}, service_of(policy), HASH)
    note = noted(notes, f"placement.{rule}")
    assert (note.act, note.words) == (act, words)
    assert bool(note.marks) == (act is Act.WROTE)
    assert bool(note.owed) == (act is Act.LEFT)


def test_the_global_default_class_is_no_conflict_and_what_it_brought_along_goes_with_it() -> None:
    spec = {"priorityClassName": "default", "priority": 7, "preemptionPolicy": "Never"}
    note = noted(
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


def test_a_pointer_leads_to_what_the_rule_wrote() -> None:
    document = {"metadata": {}, "spec": terms([EXISTS], [EXISTS])}
    service = service_of({**IN_B_OR_G, "tolerations": [{"key": "k", "operator": "Exists"}]})
    notes, after = explain(document, service, HASH), rewritten(document, service)
    expected = {
        "placement.topology[0]": {**IN_B, "values": ["b", "g"]},
        "placement.tolerations[0]": {"key": "k", "operator": "Exists"},
    }
    for rule, value in expected.items():
        for mark in noted(notes, rule).marks:
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
def test_what_a_mode_keeps_from_being_written_is_reported_all_the_same(
    mode: Mode, spec: Json, act: Act, words: str
) -> None:
    service = service_of({"nodeSelector": {"disk": "ssd"}}, modes=Modes(placement=mode))
    note = noted(explain({"metadata": {}, "spec": spec}, service, HASH), "placement.nodeSelector[disk]")
    assert (note.act, note.words, note.marks) == (act, words, ())
    assert note.is_checked == (mode is not Mode.DISABLED)


def test_our_own_label_and_annotation_are_reported_unless_nothing_is_in_force() -> None:
    forged = {"metadata": {"labels": {"podgate.io/service": "other"}}, "spec": {}}
    (note,) = explain(forged, service_of({}), HASH)
    assert [(mark.pointer, mark.words) for mark in note.marks] == [
        ("/metadata/labels/podgate.io~1service", "the service of the Pod, overrides what the Pod had"),
        ("/metadata/annotations/podgate.io~1policy-hash", "the policy that rewrote it"),
    ]
    off = Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED)
    (note,) = explain(forged, service_of({}, modes=off), HASH)
    assert (note.act, note.marks) == (Act.IDLE, ())


ASKS_TOO_MUCH = {"name": "c", "resources": {"requests": {"cpu": "9"}}}
SMALL, LARGE = {"min": {"cpu": "100m"}}, {"max": {"cpu": "8"}}


@pytest.mark.parametrize(
    ("rules", "container", "rule", "act", "words"),
    [
        ({"container": {"default": {"memory": "1Gi"}}}, {}, "container.default[memory]", Act.WROTE, ""),
        ({"container": {"defaultRequest": {"cpu": "1"}}}, {}, "container.defaultRequest[cpu]", Act.WROTE, ""),
        (
            {"container": {"default": {"cpu": "1"}}},
            ASKS_TOO_MUCH,
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
            {"container": LARGE},
            {},
            "container.max[cpu]",
            Act.WROTE,
            "bounds what has no limit; as much as its limit, which is max",
        ),
        (
            {"container": LARGE, "whenOutside": "Clamp"},
            {"name": "c", "resources": {"limits": {"cpu": "9"}}},
            "container.max[cpu]",
            Act.WROTE,
            "lowered from 9 (whenOutside Clamp); as much as its limit, which is max",
        ),
        ({"container": SMALL}, {}, "container.min[cpu]", Act.WROTE, "the least that is allowed"),
        (
            {"container": LARGE, "whenOutside": "Clamp"},
            ASKS_TOO_MUCH,
            "container.max[cpu]",
            Act.WROTE,
            "lowered from 9 (whenOutside Clamp); bounds what has no limit",
        ),
        (
            {"container": {**LARGE, "default": {"cpu": "8"}}},
            ASKS_TOO_MUCH,
            "container.max[cpu]",
            Act.LEFT,
            "left: the validating half denies it (whenOutside Deny)",
        ),
        ({"pod": LARGE}, ASKS_TOO_MUCH, "pod.max[cpu]", Act.LEFT, "left: the validating half denies it"),
        ({"pod": LARGE}, {}, "pod.max[cpu]", Act.NOTHING, "all is within"),
        (
            {"container": {"default": {"cpu": "1"}, "ignore": ["istio-*"]}},
            {"name": "istio-proxy"},
            "container.ignore",
            Act.NOTHING,
            "leaves istio-proxy alone",
        ),
    ],
)
def test_each_amount_is_reported_with_its_reason(rules: Json, container: Json, rule: str, act: Act, words: str) -> None:
    note = noted(explain(asking({"name": "c", **container}), ruled(rules), HASH), f"resources.{rule}")
    assert (note.act, note.words) == (act, words)


def test_a_rule_that_did_different_things_reports_all_of_them() -> None:
    rules = ruled({"container": {"default": {"cpu": "1"}}})
    note = noted(explain(asking({"name": "a"}, ASKS_TOO_MUCH), rules, HASH), "resources.container.default[cpu]")
    assert note.words == "set; as much as the container's own request"


def test_an_amount_that_cannot_be_read_does_no_harm_where_nobody_looks_at_it() -> None:
    strange = asking({"name": "c", "resources": {"requests": {"cpu": "a lot"}}})
    rules: Json = {"container": {"max": {"cpu": "1"}}}
    resources = ruled(rules).resources
    service = service_of({"nodeSelector": {"a": "b"}}, resources=resources, modes=Modes(resources=Mode.DISABLED))
    notes = explain(strange, service, HASH)
    assert noted(notes, "placement.nodeSelector[a]").act is Act.WROTE
    assert noted(notes, "resources.container.max[cpu]").words == "mode Disabled: not evaluated"


def test_what_a_mode_keeps_from_being_written_has_no_place_in_the_pod() -> None:
    rules = {"container": {**LARGE, "default": {"cpu": "8"}}}
    notes = explain(asking(ASKS_TOO_MUCH), ruled(rules, Modes(resources=Mode.WARN)), HASH)
    note = noted(notes, "resources.container.default[cpu]")
    assert (note.act, note.marks) == (Act.IDLE, ())
    assert note.words == 'mode Warn: not acted on, would write container "c": limits.cpu'


def test_a_qos_class_that_our_patch_changes_is_reported() -> None:
    rules = {"container": {"default": {"cpu": "1", "memory": "1Gi"}}}
    note = noted(explain(asking({"name": "c"}), ruled(rules), HASH), "resources")
    assert note.words == "the Pod's QoS class becomes Guaranteed, it was BestEffort"
    only_warned = explain(asking({"name": "c"}), ruled(rules, Modes(resources=Mode.WARN)), HASH)
    assert "resources" not in {note.rule for note in only_warned}


@pytest.mark.parametrize("asked", [{}, {"requests": {"cpu": "9"}}, {"limits": {"cpu": "2"}}, {"limits": {"cpu": "9"}}])
@pytest.mark.parametrize("when_outside", ["Deny", "Clamp"])
@pytest.mark.parametrize("words", [("min", "max"), ("default", "max"), ("min", "default"), ("min", "default", "max")])
def test_an_amount_is_credited_to_one_rule(words: tuple[str, ...], when_outside: str, asked: Json) -> None:
    amounts = {"min": {"cpu": "1"}, "default": {"cpu": "2"}, "max": {"cpu": "8"}}
    rules = {"container": {word: amounts[word] for word in words}, "whenOutside": when_outside}
    notes = explain(asking({"name": "c", "resources": asked}), ruled(rules), HASH)
    marks = [mark.pointer for note in notes for mark in note.marks if note.rule.startswith("resources.")]
    assert len(marks) == len(set(marks))
    least = noted(notes, f"resources.container.{words[0]}[cpu]")
    assert words[0] != "min" or all("/requests/" in mark.pointer for mark in least.marks)


@pytest.mark.parametrize(
    ("words", "asked", "rule", "told"),
    [
        (("min", "default", "max"), {"limits": {"cpu": "4"}}, "default", "as much as its limit"),
        (("min", "max"), {"limits": {"cpu": "4"}}, "min", "as much as its limit"),
        (("min", "default"), {}, "default", "set"),
    ],
)
def test_the_rule_that_decided_says_why(words: tuple[str, ...], asked: Json, rule: str, told: str) -> None:
    amounts = {"min": {"cpu": "1"}, "default": {"cpu": "2"}, "max": {"cpu": "8"}}
    rules = {"container": {word: amounts[word] for word in words}}
    notes = explain(asking({"name": "c", "resources": asked}), ruled(rules), HASH)
    assert [note.rule for note in notes if note.marks][1:2] == [f"resources.container.{rule}[cpu]"]
    assert noted(notes, f"resources.container.{rule}[cpu]").words == (told if told != "set" else "")


def test_an_amount_that_only_several_rules_bring_about_has_the_first_of_them_beside_it() -> None:
    """Huge pages are not given to a container without cpu or memory, and either word means both."""
    words = {"default": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "defaultRequest": {"hugepages-2Mi": "2Mi"}}
    notes = explain(asking({"name": "c"}), ruled({"container": words}), HASH)
    for rule, side in (("default", "limits"), ("defaultRequest", "requests")):
        (mark,) = noted(notes, f"resources.container.{rule}[hugepages-2Mi]").marks
        assert mark.pointer == f"/spec/containers/0/resources/{side}/hugepages-2Mi"


def test_a_document_is_not_touched_by_being_explained() -> None:
    document = asking({"name": "c"}, **terms([EXISTS]))
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
def test_what_differs_is_found_by_pointer(before: Json, after: Json, expected: list[tuple[str, str]]) -> None:
    assert [(change.before, change.after) for change in changes(before, after)] == expected
