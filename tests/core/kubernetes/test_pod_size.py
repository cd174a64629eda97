"""Limits on a Pod's size: larger ones are rejected with the right status, others evaluated correctly."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.reviewing import Gate, body, envelope, pod, policy_of
from tests.core.strategies import examples
from webhook.core.admission import review, stages
from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.mutation import rewrite
from webhook.core.kubernetes import pod_size
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint, combine_expressions
from webhook.core.kubernetes.oversized_pod import reduce_object
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_size import (
    CONTAINERS_MAX,
    ENTRIES_MAX,
    LARGE_BYTES,
    LARGE_CONTAINERS,
    PARTS_MAX,
)
from webhook.core.kubernetes.types import NodeRequirement

SERVICES = """\
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {nodeSelector: {disk: ssd}}
  resources: {container: {default: {memory: 64Mi}, max: {cpu: 4}}}
  quota: {windows: [{window: 1h, hard: {pods: 9, requests.cpu: 1000k}}]}
- {name: rest, match: {namespaces: [shop]}, placement: {nodeSelector: {disk: hdd}}}
- {name: tried, match: {namespaces: [trial]}, modes: {placement: Warn}, placement: {nodeSelector: {disk: ssd}}}
- name: "off"
  match: {namespaces: ["off"]}
  modes: {placement: Disabled, resources: Disabled, quota: Disabled, breaker: Disabled}
"""


def containers(number: int) -> list[dict[str, Any]]:
    """Build containers that all request different amounts."""
    return [{"name": f"c{n}", "resources": {"requests": {"cpu": f"{n + 1}m"}}} for n in range(number)]


def labels(number: int) -> dict[str, str]:
    return {"app": "web", **{f"label-{n}": "" for n in range(number)}}


TOO_MANY = ENTRIES_MAX + 2
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
OVERSIZED: dict[str, dict[str, Any]] = {
    "containers": {"containers": containers(CONTAINERS_MAX + 1)},
    "initContainers": {"initContainers": containers(CONTAINERS_MAX)},
    "amounts": {"containers": [{"name": "c", "resources": {"limits": {f"e.io/r{n}": "1" for n in range(TOO_MANY)}}}]},
    "tolerations": {"tolerations": [{"operator": "Exists"}] * TOO_MANY},
    "nodeSelector": {"nodeSelector": {f"k{n}": "v" for n in range(TOO_MANY)}},
    "schedulingGates": {"schedulingGates": [{"name": f"g{n}"} for n in range(TOO_MANY)]},
    "spread": {"topologySpreadConstraints": [SPREAD] * TOO_MANY},
    "terms": {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM] * TOO_MANY}}
        }
    },
    "resources": {"resources": {"requests": {f"e.io/r{n}": "1" for n in range(TOO_MANY)}}},
}


@pytest.fixture
def gate() -> Gate:
    return Gate(policy_of(SERVICES))


@pytest.mark.parametrize("spec", OVERSIZED.values(), ids=OVERSIZED)
async def test_oversized_pod_is_refused_by_the_validating_half_only(gate: Gate, spec: dict[str, Any]) -> None:
    mutated = await gate.mutate(object=pod({"app": "web"}, **spec))
    assert (mutated.verdict, mutated.service, mutated.patch) == (Verdict.ADMIT, "web", ())
    validated = await gate.validate(object=gate.build_owned_pod("u", **spec))
    assert validated.status.code == 403
    assert validated.status.message.startswith("PodTooLarge: service web: the Pod has ")
    assert validated.status.message.endswith("are read: write fewer")
    assert not gate.store.requests


@pytest.mark.parametrize(
    "many", [{"labels": labels(TOO_MANY)}, {"annotations": labels(TOO_MANY)}], ids=["labels", "annotations"]
)
@pytest.mark.parametrize(("app", "service"), [("web", "web"), ("other", "rest")])
async def test_pod_with_too_many_labels_is_refused_by_its_service(
    gate: Gate, many: dict[str, Any], app: str, service: str
) -> None:
    sent = pod(**{"labels": {}, "uid": "u", **many})
    sent["metadata"]["labels"] = {**sent["metadata"].get("labels", {}), "app": app}
    validated = await gate.validate(object=sent)
    assert validated.status.message.startswith(f"PodTooLarge: service {service}: ")


async def test_oversized_pod_is_a_warning_in_warn_mode_and_ignored_without_a_service(gate: Gate) -> None:
    found = await gate.validate(namespace="trial", object=pod(uid="u", **OVERSIZED["containers"]))
    assert (found.verdict, found.service) == (Verdict.ADMIT, "tried")
    assert [warning.partition(":")[0] for warning in found.warnings] == ["PodTooLarge"]
    for namespace, verdict in (
        ("off", Verdict.ADMIT),
        ("elsewhere", Verdict.UNMATCHED),
        ("kube-system", Verdict.EXEMPT),
    ):
        found = await gate.validate(namespace=namespace, object=pod(uid="u", **OVERSIZED["containers"]))
        assert (found.verdict, found.findings) == (verdict, ())


async def test_update_to_an_oversized_pod_is_refused_and_of_one_is_a_warning(
    gate: Gate,
) -> None:
    small, large = gate.build_owned_pod("u"), gate.build_owned_pod("u", **OVERSIZED["tolerations"])
    grown = await gate.validate(operation="UPDATE", object=large, oldObject=small)
    assert grown.status.message.startswith("PodTooLarge: ")
    kept = await gate.validate(operation="UPDATE", object=large, oldObject=large)
    assert (kept.verdict, len(kept.warnings)) == (Verdict.ADMIT, 1)


async def test_largest_allowed_pod_is_rewritten_and_validated(gate: Gate) -> None:
    sent = gate.build_owned_pod("u", containers=containers(CONTAINERS_MAX))
    assert len(msgspec.json.encode(sent)) > LARGE_BYTES
    mutated = await gate.mutate(object=sent)
    service = gate.compiled.services["web"]
    decoded = msgspec.json.decode(msgspec.json.encode(sent), type=Pod)
    assert mutated.patch == rewrite(decoded, service, gate.loaded.hash)
    assert len(mutated.patch) > CONTAINERS_MAX
    patched = jsonpatch.apply_patch(sent, msgspec.to_builtins(mutated.patch))
    assert (await gate.validate(object=patched)).verdict is Verdict.ADMIT
    assert gate.store.requests[-1].cost["requests.cpu"] == CONTAINERS_MAX * (CONTAINERS_MAX + 1) // 2
    refused = await gate.validate(object=sent)
    assert refused.status.message.startswith("PlacementUnfulfilled: ")
    assert f"and {CONTAINERS_MAX - 1} more" in refused.status.message


async def test_unused_fields_and_text_do_not_count_towards_the_size(gate: Gate) -> None:
    environment = [{"name": f"E{n}", "value": "a,b"} for n in range(TOO_MANY)]
    applied = msgspec.json.encode({"a": ["b", "c"] * TOO_MANY}).decode()
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    spec = {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "env": environment, "resources": resources}]}
    sent = gate.build_owned_pod("u", **spec)
    sent["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied
    assert (await gate.validate(object=sent)).verdict is Verdict.ADMIT


@pytest.mark.parametrize("half", list(Half))
async def test_other_reviews_are_answered_while_a_large_pod_is_evaluated(
    gate: Gate, half: Half, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation_started, may_finish = threading.Event(), threading.Event()
    name = "rewrite" if half is Half.MUTATE else "check"
    stage = getattr(stages, name)

    def run_slowly(evaluation: Evaluation, *more: Any) -> None:
        if evaluation.is_large:
            evaluation_started.set()
            assert may_finish.wait(60)
        stage(evaluation, *more)

    monkeypatch.setattr(stages, name, run_slowly)
    gate = Gate(gate.loaded)
    large = asyncio.create_task(gate.ask(half, object=gate.build_owned_pod("u", containers=containers(CONTAINERS_MAX))))
    await asyncio.to_thread(evaluation_started.wait, 60)
    for number in range(3):
        assert (await gate.ask(half, object=gate.build_owned_pod(f"small-{number}"))).decision.service == "web"
    assert not large.done()
    may_finish.set()
    assert (await large).decision.service == "web"


async def test_event_loop_runs_between_counting_and_decoding(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def measure(raw: bytes) -> pod_size.PodSize:
        asyncio.get_running_loop().call_soon(order.append, "another turn")
        order.append("counted")
        return pod_size.measure(raw)

    monkeypatch.setattr("webhook.interceptor.measure", measure)
    monkeypatch.setattr("webhook.core.admission.review._decode_in_one_pass", lambda _: order.append("decoded"))
    await gate.mutate(object=pod({"app": "web"}, containers=containers(CONTAINERS_MAX)))
    assert order == ["counted", "another turn", "decoded"]


@pytest.mark.parametrize(("name", "in_thread"), [("E" * 100_000, False), ("E" * 600_000, True)])
async def test_longest_bodies_are_decoded_beside_the_event_loop(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, name: str, *, in_thread: bool
) -> None:
    threads = set[bool]()

    def wrap(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.add(threading.current_thread() is not threading.main_thread())
            return work(*arguments)

        return call

    monkeypatch.setattr("webhook.interceptor.measure", wrap(pod_size.measure))
    monkeypatch.setattr("webhook.interceptor.review.decode", wrap(review.decode))
    long = {"name": "c", "env": [{"name": name, "value": "," * TOO_MANY}]}
    decision = await gate.mutate(object=pod({"app": "web"}, containers=[long]))
    assert decision.service == "web"
    assert threads == {in_thread}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"request":null}',
        b'{"request":{"object":[]}}',
        b'{"request":{"object":{"spec":{"containers":3}}}}',
    ],
)
def test_invalid_review_has_no_excess(raw: bytes) -> None:
    assert pod_size.measure(raw) == (True, None)


def test_other_objects_have_no_excess() -> None:
    deployment = {"spec": {"template": pod(**OVERSIZED["containers"])}}
    assert pod_size.measure(msgspec.json.encode(envelope(object=deployment))) == (True, None)
    assert pod_size.measure(body(object=pod(**OVERSIZED["containers"]))).excess is not None


@pytest.mark.parametrize(
    ("spec", "is_large"),
    [
        ({"containers": containers(LARGE_CONTAINERS)}, False),
        ({"containers": containers(LARGE_CONTAINERS - 1), "initContainers": containers(1)}, False),
        ({"containers": containers(LARGE_CONTAINERS), "initContainers": containers(1)}, True),
        ({"containers": [{"name": "c", "env": [{"name": "E", "value": "a,b"}] * 5000}]}, False),
        ({"containers": containers(1), "tolerations": [{"key": str(n), "value": "v"} for n in range(700)]}, False),
        ({"containers": containers(1), "tolerations": [{"key": str(n), "value": "v"} for n in range(1100)]}, True),
    ],
)
def test_pod_is_large_by_its_parts_not_by_its_texts(spec: dict[str, Any], *, is_large: bool) -> None:
    small = pod({"app": "web"}, containers=containers(1))
    assert pod_size.measure(body(object=pod({"app": "web"}, **spec))).is_large is is_large
    assert pod_size.measure(body(object=small, oldObject=pod({"app": "web"}, **spec))).is_large is is_large


EXPRESSIONS = st.lists(
    st.builds(
        NodeRequirement,
        st.just("k"),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Else"]),
        st.none() | st.lists(st.sampled_from(["1", "2", "3", "x"]), max_size=3).map(tuple),
    ),
    max_size=6,
)


@given(EXPRESSIONS)
@example([NodeRequirement("k", *parts) for parts in (("DoesNotExist",), ("In", ("1",)), ("NotIn", ("1",)))])
def test_joined_expressions_equal_consecutive_narrowing(expressions: list[NodeRequirement]) -> None:
    found = ANYTHING
    for expression in expressions:
        found = found.narrow(expression.operator, frozenset(expression.values or ()))
    joined = combine_expressions(expressions).get("k", ANYTHING)
    assert joined.is_impossible == found.is_impossible
    assert [joined.rules_out(value) for value in ("1", "2", "3", "x", "y")] == [
        found.rules_out(value) for value in ("1", "2", "3", "x", "y")
    ]
    assert joined.implies(found)
    assert found.implies(joined)


@pytest.mark.parametrize("operator", ["NotIn", "In"])
def test_expressions_on_one_label_are_narrowed_once(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    narrowed = Constraint.narrow

    def count_narrowing(self: Constraint, *constraints_of: Any) -> Constraint:
        nonlocal calls
        calls += 1
        return narrowed(self, *constraints_of)

    monkeypatch.setattr(Constraint, Constraint.narrow.__name__, count_narrowing)
    combine_expressions([NodeRequirement("k", operator, (f"v{n}",)) for n in range(1_000)])
    assert calls == 1


PARTS = ("containers", "initContainers", "tolerations", "schedulingGates")


@examples(100)
@given(
    st.dictionaries(st.sampled_from(PARTS), st.integers(0, 1200), min_size=1),
    st.integers(0, 1200),
    st.integers(0, 1200),
)
def test_a_body_with_few_parts_is_below_the_limits(parts: dict[str, int], labels: int, texts: int) -> None:
    """The lists have the shortest items that there are, so that no other body has more of them."""
    spec = {name: [{}] * count for name, count in parts.items()}
    metadata = {"labels": {f"{number}": "" for number in range(labels)}, "annotations": {"text": "," * texts}}
    raw = msgspec.json.encode({"request": {"object": {"metadata": metadata, "spec": spec}}})
    if not pod_size.has_many_parts(raw):
        assert pod_size.measure(raw).excess is None
    else:
        assert sum(parts.values()) + labels + texts > PARTS_MAX


def test_both_limits_are_above_what_few_parts_may_hold() -> None:
    two_lists = 2
    assert PARTS_MAX + two_lists <= CONTAINERS_MAX < ENTRIES_MAX


@pytest.mark.parametrize("spec", OVERSIZED.values(), ids=OVERSIZED)
def test_a_template_is_measured_as_its_pod_is(spec: dict[str, Any]) -> None:
    """The largest values within the limit are within it in both, and one more is beyond it in both."""
    [(name, value)] = spec.items()
    if name not in {"initContainers", "containers"}:
        assert measure_both(spec) == (True, True)
    for fewer in (1, 2, 3):
        less = value[:-fewer] if isinstance(value, list) else value
        is_over, is_template_over = measure_both({name: less})
        assert is_over is is_template_over


def measure_both(spec: dict[str, Any]) -> tuple[bool, bool]:
    made = pod({"app": "web"}, **spec)
    return pod_size.measure(body(object=made)).excess is not None, pod_size.measure_template(made).excess is not None


@examples(100)
@given(
    st.dictionaries(st.sampled_from([*PARTS, "nodeSelector"]), st.integers(0, 4), min_size=1),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_a_template_has_as_many_parts_as_its_pod(parts: dict[str, int], labels: int, amounts: int) -> None:
    resources = {"limits": {f"r{n}": "1" for n in range(amounts)}, "requests": {"cpu": "1"}}
    spec: dict[str, Any] = {
        name: [{"resources": resources, "a": ["b"] * count}] * count for name, count in parts.items()
    }
    metadata = {"labels": {f"{number}": "" for number in range(labels)}, "ownerReferences": [{"kind": "A", "uid": "b"}]}
    template = {"metadata": metadata, "spec": spec}
    counted = pod_size._count(msgspec.json.decode(msgspec.json.encode(template), type=pod_size._Pod))
    assert pod_size.measure_template(template)[:2] == counted


@pytest.mark.parametrize("wrong", [{}, {"metadata": 1, "spec": []}, {"spec": {"containers": 3, "initContainers": [1]}}])
def test_a_template_of_wrong_types_is_no_larger_than_its_lists(wrong: dict[str, Any]) -> None:
    assert pod_size.measure_template(wrong).excess is None


async def test_a_long_text_is_not_counted(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("webhook.interceptor.measure")
    environment = [{"name": "E", "value": "x" * 2 * LARGE_BYTES}]
    assert (await gate.mutate(object=pod({"app": "web"}, containers=[{"name": "c", "env": environment}]))).patch


@pytest.mark.parametrize("path", [("spec", "template"), ("spec", "jobTemplate", "spec", "template")])
def test_a_template_that_is_too_large_is_taken_out_of_its_object_before_it_is_decoded(path: tuple[str, ...]) -> None:
    def build(template: Any) -> msgspec.Raw:
        for key in reversed(path):
            template = {key: template, "other": 1}
        return msgspec.Raw(msgspec.json.encode(template))

    spec = {"runtimeClassName": "vm", "containers": containers(CONTAINERS_MAX + 1)}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": spec}
    reduced, excess = reduce_object(build(template), path)
    assert excess == pod_size.measure_template(template).excess
    kept = {"metadata": {"labels": {"app": "web"}}, "spec": {"runtimeClassName": "vm"}}
    assert bytes(reduced) == bytes(build(kept))
    for other in (pod(), None, 1, {"spec": {"containers": 1}}):
        assert reduce_object(build(other), path) == (build(other), None)
