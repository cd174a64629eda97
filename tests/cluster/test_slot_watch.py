"""The watch of Pods on a real API server tells who holds the slots of a variant."""

import asyncio
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.controller.controller_simulation import NO_REPORTS, WITHOUT_DELAYS
from tests.controller.shares.variant_cluster import FakeOwners, FakeSlots, compile_shares
from tests.harness.fake_apiserver import wait_until
from webhook.adapters.clocks import SystemClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.kubernetes import WatchedPods, connect
from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import ControllerReports
from webhook.controller.shares.slot_reconciler import SlotReconciler
from webhook.controller.shares.variant_pods import VariantPods

Json = dict[str, Any]
SPACE = "variant-watch"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
JSON_PATCH = "application/json-patch+json"
SHARES = compile_shares(namespace=SPACE)


def build(name: str, slot: int) -> Json:
    """Return a Pod with a slot, as Podgate leaves it, of an owner that does not exist."""
    labels = {"app": "web", "podgate.io/service": "web", "podgate.io/variant": "spot"}
    annotations = {"podgate.io/slot": str(slot), "podgate.io/slot-claim": f"c-{name}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    metadata = {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def create(plane: ControlPlane, document: Json) -> None:
    status, created = plane.api.request("POST", PODS, document)
    assert status == 201, created


def ignore(*_: Any) -> None:
    """Take no notice."""


async def test_the_watch_tells_the_store_who_holds_which_slot(api_alone: ControlPlane) -> None:
    """On an API server without controllers: its Pods may be of owners that do not exist."""
    api_alone.create_namespace(SPACE)
    for slot in (1, 2, 3):
        create(api_alone, build(f"p{slot}", slot))
    clock, store = SystemClock(), FakeSlots()
    reconciler = SlotReconciler(store, FakeOwners(rs=5), clock, lambda: SHARES, WITHOUT_DELAYS)
    observer = VariantPods(reconciler, clock.now_us)
    async with await connect(api_alone.kubeconfig) as client:
        watch = WatchedPods(client, clock, reports=NO_REPORTS)
        reports = ControllerReports(*(ignore for _ in ControllerReports.__dataclass_fields__))
        tracker = PodTracker(
            *(lambda: SHARES, FixedNamespaces(), clock, lambda: watch.continuity, reports), (observer,)
        )
        tasks = [asyncio.create_task(loop) for loop in (watch.run(tracker), reconciler.run())]
        try:
            await wait_until(lambda: store.held.get("rs") == {"c-p1": 1, "c-p2": 2, "c-p3": 3})
            await wait_until(lambda: ("learn", "rs", 5, [1, 2, 3], 60) in store.told)
            failed = [{"op": "replace", "path": "/status/phase", "value": "Failed"}]
            api_alone.api.request("PATCH", f"{PODS}/p1/status", failed, JSON_PATCH)
            api_alone.api.request("DELETE", f"{PODS}/p2")
            create(api_alone, build("p4", 4))
            await wait_until(lambda: store.held.get("rs") == {"c-p3": 3, "c-p4": 4})
            for name in ("p3", "p4"):
                api_alone.api.request("DELETE", f"{PODS}/{name}")
            await wait_until(lambda: store.held.get("rs") == {})
            assert len(observer) == 0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            api_alone.delete(f"/api/v1/namespaces/{SPACE}")
