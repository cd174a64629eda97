"""What decides whether a new Pod waits: its cost after the rewrite, which is what it is charged."""

import pytest

from tests.core.generating.vocabulary import Json
from tests.core.reviewing import Gate, pod, policy_of
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.overload import OverloadLimits
from webhook.fallback.admission_queue import AdmissionQueue
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.interceptor import Interceptor
from webhook.observers import Observers

DEFAULT = "container: {defaultRequest: {cpu: '1'}}"
CLAMP = "container: {max: {cpu: '1'}}, whenOutside: Clamp"


def gate_of(resources: str, mode: str = "Enforce") -> Gate:
    gate = Gate(
        policy_of(f"""
- name: web
  match: {{namespaces: [shop]}}
  modes: {{resources: {mode}}}
  resources: {{{resources}}}
  quota: {{windows: [{{window: 1m, hard: {{cpu: '2'}}}}], whenExceeded: Queue, queue: {{}}}}
""")
    )
    monitor = OverloadMonitor(OverloadLimits(), gate.clock, lambda: "", lambda *_: None)
    gate.interceptor = Interceptor(
        FixedPolicy(gate.loaded, gate.clock),
        gate.store,
        FixedNamespaces({"shop": {}}),
        Observers(),
        queue=AdmissionQueue(gate.store, MemoryQueueIndex(gate.clock), gate.clock, monitor),
    )
    return gate


def pod_of(requests: Json, count: int = 1) -> Json:
    return pod(containers=[{"name": f"c{number}", "resources": {"requests": requests}} for number in range(count)])


async def is_gated(gate: Gate, asked: Json) -> bool:
    return QUEUE_GATE in str((await gate.mutate(object=asked)).patch)


async def fill(gate: Gate) -> None:
    """Use the whole limit."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]
    for uid in "ab":
        assert (await gate.validate(object=gate.build_owned_pod(uid, containers=containers))).allowed


@pytest.mark.parametrize(("resources", "requests"), [(DEFAULT, {}), (CLAMP, {"cpu": "10"}), (DEFAULT, {"cpu": "1"})])
async def test_pod_waits_if_there_is_no_room_for_it_as_rewritten(resources: str, requests: Json) -> None:
    gate = gate_of(resources)
    asked = pod_of(requests)
    assert not await is_gated(gate, asked)
    assert [request.cost for request in gate.store.requests if request.peek] == [{"requests.cpu": 1000}]
    await fill(gate)
    assert await is_gated(gate, asked)


async def test_large_pod_waits_as_any_other() -> None:
    gate = gate_of(DEFAULT.replace("'1'", "1m"))
    await fill(gate)
    assert await is_gated(gate, pod_of({}, 300))
    assert gate.store.requests[-1].cost == {"requests.cpu": 300}


async def test_pod_that_exceeds_a_whole_limit_as_rewritten_does_not_wait() -> None:
    gate = gate_of(DEFAULT)
    await fill(gate)
    assert not await is_gated(gate, pod_of({}, 3)), "it is denied: it would wait forever"


@pytest.mark.parametrize("mode", ["Warn", "Audit", "Disabled"])
async def test_pod_that_is_not_rewritten_is_judged_as_it_was_sent(mode: str) -> None:
    gate = gate_of(DEFAULT, mode)
    await fill(gate)
    assert not await is_gated(gate, pod_of({}))
    assert await is_gated(gate, pod_of({"cpu": "1"}))
