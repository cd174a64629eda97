"""Limits on a Pod's size: larger ones are rejected with the right status, others evaluated correctly."""

import asyncio
import threading
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import Gate, body, envelope, pod, policy_of
from webhook.core.admission import stages
from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.mutation import rewrite
from webhook.core.kubernetes import pod_size
from webhook.core.kubernetes.label_constraints import ANYTHING, Constraint, constraints_of
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_size import CONTAINERS_MAX, ENTRIES_MAX, LARGE_BYTES
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
    """Each asks for amounts of its own, so that none is like another."""
    return [{"name": f"c{n}", "resources": {"requests": {"cpu": f"{n + 1}m"}}} for n in range(number)]


def labels(number: int) -> dict[str, str]:
    return {"app": "web", **{f"label-{n}": "" for n in range(number)}}


MANY = ENTRIES_MAX + 2
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
BEYOND: dict[str, dict[str, Any]] = {
    "containers": {"containers": containers(CONTAINERS_MAX + 1)},
    "initContainers": {"initContainers": containers(CONTAINERS_MAX)},
    "amounts": {"containers": [{"name": "c", "resources": {"limits": {f"e.io/r{n}": "1" for n in range(MANY)}}}]},
    "tolerations": {"tolerations": [{"operator": "Exists"}] * MANY},
    "nodeSelector": {"nodeSelector": {f"k{n}": "v" for n in range(MANY)}},
    "schedulingGates": {"schedulingGates": [{"name": f"g{n}"} for n in range(MANY)]},
    "spread": {"topologySpreadConstraints": [SPREAD] * MANY},
    "terms": {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM] * MANY}}
        }
    },
    "resources": {"resources": {"requests": {f"e.io/r{n}": "1" for n in range(MANY)}}},
}


@pytest.fixture
def gate() -> Gate:
    return Gate(policy_of(SERVICES))


@pytest.mark.parametrize("spec", BEYOND.values(), ids=BEYOND)
async def test_a_pod_beyond_the_bounds_is_refused_by_the_validating_half_alone(
    gate: Gate, spec: dict[str, Any]
) -> None:
    mutated = await gate.mutate(object=pod({"app": "web"}, **spec))
    assert (mutated.verdict, mutated.service, mutated.patch) == (Verdict.ADMIT, "web", ())
    judged = await gate.validate(object=gate.owned("u", **spec))
    assert judged.status.code == 403
    assert judged.status.message.startswith("PodTooLarge: service web: the Pod has ")
    assert judged.status.message.endswith("are read: write fewer")
    assert not gate.store.asked


@pytest.mark.parametrize(
    "many", [{"labels": labels(MANY)}, {"annotations": labels(MANY)}], ids=["labels", "annotations"]
)
async def test_so_is_one_with_too_many_labels_of_which_the_first_service_of_its_namespace_speaks(
    gate: Gate, many: dict[str, Any]
) -> None:
    judged = await gate.validate(object=pod(**{"labels": {"app": "web"}, "uid": "u", **many}))
    assert judged.status.message.startswith("PodTooLarge: service web: ")


async def test_who_only_tries_a_policy_out_is_warned_and_who_has_none_of_it_counts_nothing(gate: Gate) -> None:
    found = await gate.validate(namespace="trial", object=pod(uid="u", **BEYOND["containers"]))
    assert (found.verdict, found.service) == (Verdict.ADMIT, "tried")
    assert [one.partition(":")[0] for one in found.warnings] == ["PodTooLarge"]
    for namespace, verdict in (
        ("off", Verdict.ADMIT),
        ("elsewhere", Verdict.UNMATCHED),
        ("kube-system", Verdict.EXEMPT),
    ):
        found = await gate.validate(namespace=namespace, object=pod(uid="u", **BEYOND["containers"]))
        assert (found.verdict, found.findings) == (verdict, ())


async def test_an_update_may_not_lead_beyond_the_bounds_and_one_of_a_pod_that_was_there_is_only_warned_of(
    gate: Gate,
) -> None:
    small, large = gate.owned("u"), gate.owned("u", **BEYOND["tolerations"])
    grown = await gate.validate(operation="UPDATE", object=large, oldObject=small)
    assert grown.status.message.startswith("PodTooLarge: ")
    for new in (large, small):
        kept = await gate.validate(operation="UPDATE", object=new, oldObject=large)
        assert (kept.verdict, len(kept.warnings)) == (Verdict.ADMIT, 1)


async def test_the_largest_pod_that_is_read_is_judged_as_any_other(gate: Gate) -> None:
    asked = gate.owned("u", containers=containers(CONTAINERS_MAX))
    assert len(msgspec.json.encode(asked)) > LARGE_BYTES
    mutated = await gate.mutate(object=asked)
    service = gate.compiled.services["web"]
    decoded = msgspec.json.decode(msgspec.json.encode(asked), type=Pod)
    assert mutated.patch == rewrite(decoded, service, gate.loaded.hash)
    assert len(mutated.patch) > CONTAINERS_MAX
    patched = jsonpatch.apply_patch(asked, msgspec.to_builtins(mutated.patch))
    assert (await gate.validate(object=patched)).verdict is Verdict.ADMIT
    assert gate.store.asked[-1].cost["requests.cpu"] == CONTAINERS_MAX * (CONTAINERS_MAX + 1) // 2
    refused = await gate.validate(object=asked)
    assert refused.status.message.startswith("PlacementUnfulfilled: ")
    assert f"and {CONTAINERS_MAX - 1} more" in refused.status.message


async def test_what_nobody_reads_of_a_pod_and_what_stands_in_texts_is_not_counted(gate: Gate) -> None:
    environment = [{"name": f"E{n}", "value": "a,b"} for n in range(MANY)]
    applied = msgspec.json.encode({"a": ["b", "c"] * MANY}).decode()
    good = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    spec = {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "env": environment, "resources": good}]}
    asked = gate.owned("u", **spec)
    asked["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied
    assert (await gate.validate(object=asked)).verdict is Verdict.ADMIT


@pytest.mark.parametrize("half", list(Half))
async def test_others_are_answered_while_a_large_pod_is_judged(
    gate: Gate, half: Half, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    name = "rewrite" if half is Half.MUTATE else "check"
    stage = getattr(stages, name)

    def slow(evaluation: Evaluation, *more: Any) -> None:
        if evaluation.is_large:
            begun.set()
            assert may_go_on.wait(60)
        stage(evaluation, *more)

    monkeypatch.setattr(stages, name, slow)
    gate = Gate(gate.loaded)
    large = asyncio.create_task(gate.ask(half, object=gate.owned("u", containers=containers(CONTAINERS_MAX))))
    await asyncio.to_thread(begun.wait, 60)
    for number in range(3):
        assert (await gate.ask(half, object=gate.owned(f"small-{number}"))).decision.service == "web"
    assert not large.done()
    may_go_on.set()
    assert (await large).decision.service == "web"


async def test_others_have_a_turn_between_counting_and_decoding(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def counted(given: bytes) -> pod_size.OversizedPod | None:
        asyncio.get_running_loop().call_soon(order.append, "another turn")
        order.append("counted")
        return pod_size.excess(given)

    monkeypatch.setattr("webhook.interceptor.excess", counted)
    monkeypatch.setattr("webhook.core.admission.review._in_one_pass", lambda _: order.append("decoded"))
    await gate.mutate(object=pod({"app": "web"}, containers=containers(CONTAINERS_MAX)))
    assert order == ["counted", "another turn", "decoded"]


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"{",
        b"[]",
        b'{"request":null}',
        b'{"request":{"object":[]}}',
        b'{"request":{"object":{"spec":{"containers":3}}}}',
    ],
)
def test_what_is_no_review_has_no_excess(given: bytes) -> None:
    assert pod_size.excess(given) is None


def test_of_other_objects_nothing_is_beyond() -> None:
    deployment = {"spec": {"template": pod(**BEYOND["containers"])}}
    assert pod_size.excess(msgspec.json.encode(envelope(object=deployment))) is None
    assert pod_size.excess(body(object=pod(**BEYOND["containers"]))) is not None


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
def test_expressions_joined_say_what_they_say_one_after_another(expressions: list[NodeRequirement]) -> None:
    found = ANYTHING
    for one in expressions:
        found = found.narrowed(one.operator, frozenset(one.values or ()))
    joined = constraints_of(expressions).get("k", ANYTHING)
    assert joined.impossible == found.impossible
    assert [joined.rules_out(value) for value in ("1", "2", "3", "x", "y")] == [
        found.rules_out(value) for value in ("1", "2", "3", "x", "y")
    ]
    assert joined.implies(found)
    assert found.implies(joined)


@pytest.mark.parametrize("operator", ["NotIn", "In"])
def test_lists_of_values_of_one_label_are_joined_once_however_many_there_are(
    operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    narrowed = Constraint.narrowed

    def counted(self: Constraint, *constraints_of: Any) -> Constraint:
        nonlocal calls
        calls += 1
        return narrowed(self, *constraints_of)

    monkeypatch.setattr(Constraint, "narrowed", counted)
    constraints_of([NodeRequirement("k", operator, (f"v{n}",)) for n in range(1_000)])
    assert calls == 1
