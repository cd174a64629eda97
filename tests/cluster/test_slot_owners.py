"""Owners of slots and their Pods on a real API server, read with the rights of a server's manifests."""

from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.cluster.shares import build_policy
from webhook.adapters.kubernetes import SlotOwnerReader, connect
from webhook.core.shares import SlotOwner
from webhook.ports import HeldSlot, OwnedPods
from webhook.support.condition import Condition

NAMESPACE = "slot-owners"
_TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def create(plane: ControlPlane, kind: str, name: str, spec: dict[str, Any]) -> SlotOwner:
    group, resource = {"ReplicaSet": ("apps", "replicasets"), "Job": ("batch", "jobs")}[kind]
    metadata = {"name": name, "namespace": NAMESPACE}
    plane.apply({"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": spec})
    made = plane.api.get(f"/apis/{group}/v1/namespaces/{NAMESPACE}/{resource}/{name}")
    return SlotOwner(kind, NAMESPACE, name, made["metadata"]["uid"], ("app", "web"))


def create_pod(plane: ControlPlane, name: str, owner: SlotOwner, slot: int, **metadata: Any) -> None:
    reference = {"apiVersion": "apps/v1", "kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": True}
    annotations = {"podgate.io/slot": str(slot), "podgate.io/slot-claim": f"claim-{name}"}
    made = {"name": name, "namespace": NAMESPACE, "labels": {"app": "web"}, "annotations": annotations}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**made, "ownerReferences": [reference], **metadata},
            "spec": _TEMPLATE["spec"],
        }
    )


async def test_owners_and_their_pods_are_read_from_a_real_api_server(
    api_alone: ControlPlane, identities: Identities
) -> None:
    plane, troubles = api_alone, list[str]()
    policy = build_policy({"elsewhere": ["slots-elsewhere"]})
    with install_podgate(plane, identities.files, policy, ["slots-elsewhere"], servers=0) as installation:
        plane.create_namespace(NAMESPACE)
        web = create(
            plane,
            "ReplicaSet",
            "web",
            {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE},
        )
        once = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
        job = create(plane, "Job", "sums", {"parallelism": 3, "completions": 9, "template": once})
        other = create(
            plane, "ReplicaSet", "other", {"selector": {"matchLabels": {"app": "web"}}, "template": _TEMPLATE}
        )
        create_pod(plane, "lives", web, 1)
        create_pod(plane, "ended", web, 2)
        create_pod(plane, "ends", web, 3, finalizers=["example.com/kept"])
        create_pod(plane, "others", other, 4)
        status, _ = plane.api.request(
            "PATCH",
            f"/api/v1/namespaces/{NAMESPACE}/pods/ended/status",
            {"status": {"phase": "Failed"}},
            "application/merge-patch+json",
        )
        assert status == 200
        plane.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/ends")
        async with await connect(installation.kubeconfig()) as client:
            reader = SlotOwnerReader(client, Condition(troubles.append, lambda _: None))
            assert [await reader.read_replicas(owner) for owner in (web, job, other)] == [4, 3, 1]
            gone = SlotOwner("ReplicaSet", NAMESPACE, "web", "another-uid")
            assert await reader.read_replicas(gone) == 0
            assert await reader.read_replicas(SlotOwner("Job", NAMESPACE, "none", "u")) == 0
            assert await reader.list_held(web) == OwnedPods((HeldSlot(1, "claim-lives"),), 1)
            assert await reader.list_held(other) == OwnedPods((HeldSlot(4, "claim-others"),), 1)
            assert await reader.list_held(job) == OwnedPods((), 0)
    assert troubles == []
