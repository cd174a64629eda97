"""Opcodes of the extender for a Pod, counted in this process: they do not depend on how busy the machine is."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from statistics import median
from typing import Any

from tests.bench.opcode_counts import count_opcodes
from tests.bench.scheduling.cluster import EXTENDERS, build_policies, nodes, pod
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

NOW = 1_795_500_000.0
PODS = 21
_MILLIS, _MEMORY_BYTES = 64_000.0, 2.0**40
_HOT_EVERY, _HOT_MILLIS, _WARM_MILLIS = 10, 60_000.0, 8_000.0


def measure_opcodes(count: int, asked: int) -> dict[str, float]:
    """Return the median opcodes for a Pod by way: of `filter`, of `prioritize`, and of the watch once it is bound.

    The cluster has `count` nodes, and the scheduler asks about `asked` of them.
    """
    return {way: _measure(way, count, asked) for way in EXTENDERS}


def _measure(way: str, count: int, asked: int) -> float:
    extender = _create_extender(build_policies("http://127.0.0.1:9090")[way], count)
    names = [document["metadata"]["name"] for document in nodes(count)][:asked]
    found = [_schedule(extender, f"pod-{number}", way, names) for number in range(PODS)]
    return median(found[1:])  # the first one judges all nodes, as after each refresh


def _schedule(extender: Extender, name: str, way: str, names: list[str]) -> int:
    document = pod(name, way)
    document["metadata"] |= {"uid": name, "namespace": "shop"}
    filtered, answer = _call(extender.filter, document, names)
    passed = answer["NodeNames"]
    scored, scores = _call(extender.prioritize, document, passed)
    best = max(scores, key=lambda score: score["Score"])["Host"] if scores else passed[0]
    bound = Pod.from_document(document | {"spec": document["spec"] | {"nodeName": best}})
    watched, _ = count_opcodes(lambda: _run_at_once(extender.table.index.on_changed(bound, gone=False)))
    return filtered + scored + watched


def _run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits: an event loop of its own has thousands of opcodes."""
    with contextlib.suppress(StopIteration):
        work.send(None)


def _call(verb: Callable[[bytes], bytes], document: dict[str, Any], names: list[str]) -> tuple[int, Any]:
    body = json.dumps({"Pod": document, "NodeNames": names}).encode()
    opcodes, answer = count_opcodes(lambda: verb(body))
    return opcodes, json.loads(answer)


def _create_extender(text: str, count: int) -> Extender:
    policy = CompiledPolicy(load(text.encode(), Purpose.SERVE).policy)
    extender = Extender(lambda: policy, SchedulingRecords(lambda: None), lambda: NOW)
    table, documents = extender.table, nodes(count)
    names = [document["metadata"]["name"] for document in documents]
    labels = [document["metadata"]["labels"] for document in documents]
    table.index.on_nodes_listed(
        KnownNode(SchedulableNode(name, _MILLIS, _MEMORY_BYTES, found))
        for name, found in zip(names, labels, strict=True)
    )
    table.configure(policy.policy.nodes, ["prometheus"])
    loads = {
        name: NodeLoad(
            "prometheus", NOW, _WARM_MILLIS if number % _HOT_EVERY else _HOT_MILLIS, 0.0, memory_pressure=0.0
        )
        for number, name in enumerate(names)
    }
    table.take_measurements("prometheus", loads)
    table.settle(table.list_nodes())
    zone = {"cpu": 32 * NANO, "memory": int(_MEMORY_BYTES) * NANO}
    table.numa.on_numa_listed({name: NumaZones((zone, zone), is_by_pod=False) for name in names})
    asyncio.run(table.index.on_list_begun())
    asyncio.run(table.index.on_list_complete())
    return extender
