"""Slot owners, read from objects as an API server writes them."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from kubernetes_asyncio.client import ApiClient

from tests.harness.unread_values import UNREAD
from webhook.adapters.kubernetes import slot_owners
from webhook.adapters.kubernetes.api import pages
from webhook.adapters.kubernetes.api.requests import METADATA_LIST, ApiError, RefusedError
from webhook.core.shares import SlotOwner
from webhook.ports import HeldSlot, OwnedPods
from webhook.support.condition import Condition

REPLICA_SET = SlotOwner("ReplicaSet", "shop", "web-1", "u", ("pod-template-hash", "1"))
JOB = SlotOwner("Job", "shop", "sums", "u")


class Served:
    """What an API server answers to a reader; each answer may be an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owner: dict[str, Any] | ApiError = {}
        self.pods: list[dict[str, Any]] | ApiError = []
        self.asked: list[tuple[str, Sequence[tuple[str, str]]]] = []
        self.troubles: list[str] = []
        self.unread = b"null"
        trouble = Condition[str](self.troubles.append, lambda _: self.troubles.append("over"), key=lambda _: "")
        self.reader = slot_owners.SlotOwnerReader(cast("ApiClient", None), trouble)
        monkeypatch.setattr(slot_owners, "send_request", self.answer)
        monkeypatch.setattr(pages, "request_document", self.answer_list)

    async def answer(self, _: ApiClient, __: str, path: str, ___: float) -> bytes:
        return self.encode(path, (), self.owner)

    async def answer_list(
        self, _: ApiClient, path: str, accept: str, __: float, ___: int, query: Sequence[tuple[str, str]]
    ) -> bytes:
        assert accept == METADATA_LIST
        found = self.pods
        if not isinstance(found, ApiError):
            return self.encode(path, query, {"metadata": {"resourceVersion": "7"}, "items": found})
        return self.encode(path, query, found)

    def encode(self, path: str, query: Sequence[tuple[str, str]], found: dict[str, Any] | ApiError) -> bytes:
        self.asked.append((path, query))
        if isinstance(found, ApiError):
            raise found
        return msgspec.json.encode(found).replace(b'"<unread>"', self.unread)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(monkeypatch)


def pod(owner: str = "u", *, ends: bool = False, **annotations: str) -> dict[str, Any]:
    named = {f"podgate.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": owner, "controller": True}
    metadata = {"name": "p", "annotations": named or None, "ownerReferences": [reference], "managedFields": []}
    return {"metadata": metadata | ({"deletionTimestamp": "2026-11-28T00:00:00Z"} if ends else {})}


@pytest.mark.parametrize(("spec", "replicas"), [({"replicas": 7}, 7), ({"replicas": 0}, 0), ({}, 1)])
async def test_a_replica_set_has_as_many_slots_as_it_wants_pods(
    served: Served, spec: dict[str, int], replicas: int
) -> None:
    served.owner = {"metadata": {"uid": "u"}, "spec": spec}
    assert await served.reader.read_replicas(REPLICA_SET) == replicas
    assert served.asked == [("/apis/apps/v1/namespaces/shop/replicasets/web-1", ())]


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
async def test_what_an_owner_says_is_known_whatever_its_managed_fields_are(served: Served, unread: bytes) -> None:
    served.unread = unread
    made = {"metadata": {"managedFields": "<unread>"}}
    served.owner = {"metadata": {"uid": "u", "managedFields": "<unread>"}, "spec": {"template": made, "replicas": 7}}
    assert (await served.reader.read_replicas(REPLICA_SET), served.troubles) == (7, [])


async def test_a_job_has_as_many_slots_as_it_runs_pods_at_once(served: Served) -> None:
    served.owner = {"metadata": {"uid": "u"}, "spec": {"parallelism": 5, "completions": 20, "replicas": 9}}
    assert await served.reader.read_replicas(JOB) == 5
    assert served.asked == [("/apis/batch/v1/namespaces/shop/jobs/sums", ())]


@pytest.mark.parametrize(
    "owner", [{"metadata": {"uid": "another"}, "spec": {"replicas": 7}}, RefusedError(404, "gone")]
)
async def test_an_owner_that_is_gone_has_no_slots(served: Served, owner: Any) -> None:
    served.owner = owner
    assert await served.reader.read_replicas(REPLICA_SET) == 0
    assert served.troubles == []


async def test_slots_are_those_of_its_pods_that_live(served: Served) -> None:
    served.pods = [
        pod(slot="1", slot_claim="a"),
        pod(slot="2", slot_claim="b", ends=True),
        pod("another", slot="3", slot_claim="c"),
        pod(),
        *(pod(slot=slot, slot_claim="d") for slot in ("0", "-1", "x", "9" * 5000)),
        pod(slot="4", slot_claim="e" * 1000),
        pod(slot="5"),
    ]
    assert await served.reader.list_held(REPLICA_SET) == OwnedPods((HeldSlot(1, "a"), HeldSlot(5, "")), 8)
    [(path, query)] = served.asked
    assert path == "/api/v1/namespaces/shop/pods"
    assert dict(query) == {
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "labelSelector": "pod-template-hash=1",
    }


async def test_a_missing_right_is_told_once_with_its_remedy(served: Served) -> None:
    served.owner, served.pods = {"metadata": {"uid": "u"}, "spec": {}}, RefusedError(403, "forbidden")
    for _ in range(3):
        assert await served.reader.read_replicas(REPLICA_SET) == 1
        assert await served.reader.list_held(REPLICA_SET) is None
    [told] = served.troubles
    assert "list pods in all namespaces (ClusterRole podgate)" in told
    served.pods = []
    assert await served.reader.list_held(REPLICA_SET) == OwnedPods((), 0)
    assert served.troubles == [told, "over"]
    served.owner = RefusedError(403, "forbidden")
    assert await served.reader.read_replicas(REPLICA_SET) is None
    assert "get replicasets.apps in all namespaces (ClusterRole podgate)" in served.troubles[-1]
