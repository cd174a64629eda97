"""Compared server: the webhook server and the admission engine of kopf with two handlers, without a cluster.

`kopf run` runs the same, and tasks that watch the API server.
"""

import asyncio
import copy
import functools
import ssl
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import kopf
from kopf._cogs.structs.references import Insights, Resource
from kopf._core.engines.admission import serve_admission_request
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.reactor.inventory import ResourceMemories

NAMESPACE = "payments"
SCHEDULER = "podgate-scheduler"
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"}
ZONES = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b", "zone-g"]}
PODS = Resource(group="", version="v1", plural="pods", kind="Pod", singular="pod", namespaced=True, preferred=True)


@kopf.on.mutate("pods", operations=["CREATE"])
def mutate(namespace: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    if namespace != NAMESPACE:
        return
    patch.spec["schedulerName"] = SCHEDULER
    if TOLERATION not in spec.get("tolerations", []):
        patch.spec["tolerations"] = [*spec.get("tolerations", []), TOLERATION]
    affinity = copy.deepcopy(dict(spec.get("affinity", {})))
    for term in _terms(affinity):
        expressions = term.setdefault("matchExpressions", [])
        if ZONES not in expressions:
            expressions.append(ZONES)
    patch.spec["affinity"] = affinity


@kopf.on.validate("pods", operations=["CREATE"])
def validate(namespace: str, spec: kopf.Spec, **_: Any) -> None:
    if namespace != NAMESPACE:
        return
    terms = _terms(copy.deepcopy(dict(spec.get("affinity", {}))))
    if not all(ZONES in term.get("matchExpressions", []) for term in terms):
        raise kopf.AdmissionError("spec.affinity: each term must require the zones", code=403)
    if spec.get("schedulerName") != SCHEDULER or TOLERATION not in spec.get("tolerations", []):
        raise kopf.AdmissionError("spec: the scheduler or the toleration is missing", code=403)


def _terms(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the terms of the required node affinity; add one if there is none."""
    required = affinity.setdefault("nodeAffinity", {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[dict[str, Any]] = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    return terms


async def _serve(folder: Path) -> None:
    review = functools.partial(
        serve_admission_request,
        settings=kopf.OperatorSettings(),
        memories=ResourceMemories(),
        memobase=kopf.Memo(),
        registry=kopf.get_default_registry(),
        insights=Insights(webhook_resources={PODS}),
        indices=OperatorIndexers().indices,
    )
    server = kopf.WebhookServer(
        addr="127.0.0.1",
        certfile=folder / "server.crt",
        pkeyfile=folder / "server.key",
        verify_mode=ssl.CERT_REQUIRED,
        verify_cafile=folder / "ca.crt",
    )
    async for config in server(review):
        print(urllib.parse.urlsplit(config["url"]).netloc, flush=True)


if __name__ == "__main__":
    kopf.configure(quiet=True)
    asyncio.run(_serve(Path(sys.argv[1])))
