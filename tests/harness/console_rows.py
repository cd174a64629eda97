"""Rows of the documents of a leader and of an extender, and ports that answer with them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tests.harness.console import NOW, make_ports, service
from webhook.console.interface.document_reader import ConsolePorts


def waiting_pod(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return one waiting Pod of service web, by default for its quota."""
    return {
        "queue": "web",
        "place": 1,
        "class": "gold",
        "classPlace": 1,
        "classWaiting": 1,
        "service": "web",
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "since": "2026-12-01T03:58:00Z",
        "waitingSeconds": 120,
        "lifted": False,
        "owner": "ReplicaSet/web-5f",
        "cause": "QuotaExceeded",
        "why": "quota of web has no room",
        "expectedAt": "2026-12-01T04:02:09Z",
        "expiresAt": "2026-12-01T04:28:00Z",
        "notBefore": None,
        **fields,
    }


def depth(service: str, waiting: int, sla_class: str = "gold", /, **fields: Any) -> dict[str, Any]:
    return {
        "service": service,
        "class": sla_class,
        "waiting": waiting,
        "oldestSeconds": 120,
        "paused": None,
        "failing": [],
        **fields,
    }


def queue_document(
    *pods: Mapping[str, Any], services: list[dict[str, Any]] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return the document of a leader."""
    return {
        "leads": True,
        "time": NOW,
        "waitsFor": "",
        "waiting": len(pods),
        "matching": len(pods),
        "services": [depth("web", len(pods))] if services is None else services,
        "pods": pods,
        **fields,
    }


def node(name: str, /, **fields: Any) -> dict[str, Any]:
    """Return one node of an extender's document, by default measured and cool."""
    return {
        "name": name,
        "cpuShare": 0.42,
        "memoryShare": 0.5,
        "assumedCpuMillis": 0.0,
        "assumedMemoryBytes": 0.0,
        "load": {
            "source": "metrics.k8s.io",
            "measured_at_seconds": 1.0,
            "cpu_millis": 3360.0,
            "memory_bytes": 17179869184.0,
        },
        "numaCpuMillis": None,
        "allocatableCpuMillis": 8000.0,
        "allocatableMemoryBytes": 34359738368.0,
        "assumedPods": 0,
        "ageSeconds": 12.0,
        "isSilent": False,
        "exceeds": {},
        **fields,
    }


NODES = (
    node("hot", cpuShare=0.97, exceeds=dict.fromkeys(("a", "b", "c", "d"), "hot_cpu")),
    node("silent", isSilent=True, ageSeconds=300.0),
    node("blank", load=None, cpuShare=None, memoryShare=None, ageSeconds=None, exceeds={"a": "unknown"}),
    node("asked", load={"source": "requests", "measured_at_seconds": 1.0, "cpu_millis": 3360.0}, memoryShare=None),
    node("cool", numaCpuMillis=[3500, 4000], assumedPods=2, assumedCpuMillis=500.0, assumedMemoryBytes=1073741824.0),
)


def with_nodes(answer: Callable[[str], Mapping[str, Any] | bytes]) -> tuple[ConsolePorts, list[str]]:
    """Return ports with an extender, and the paths that it is asked for."""
    asked: list[str] = []

    async def read(path: str) -> tuple[str, bytes]:
        asked.append(path)
        found = answer(path)
        return "podgate-extender-0", found if isinstance(found, bytes) else msgspec.json.encode(found)

    return replace(make_ports(service("web")), extender=read), asked


def denial(record_id: str, /, second: int = 0, message: str = "denied", **fields: Any) -> dict[str, Any]:
    """Return the record of one denied Pod of a ReplicaSet, for its quota."""
    return {
        "id": record_id,
        "at": f"2026-12-01T03:59:{second:02d}Z",
        "decision": "Deny",
        "namespace": "shop",
        "name": "web-5f-",
        "service": "web",
        "codes": ["QuotaExceeded"],
        "owner": {"kind": "ReplicaSet", "name": "web-5f", "uid": "u1"},
        "status": {"code": 429, "reason": "TooManyRequests", "message": message},
        **fields,
    }
