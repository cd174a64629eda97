"""Reviews of JSON Pods: a policy document, the memory store, a fixed clock."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.core.strategies import Json
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Half
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire, Receipt
from webhook.interceptor import Answer, Interceptor
from webhook.observers import Observers
from webhook.ports import Observer, PolicySource

NOW_US = 1_800_000_000_000_000

ALICE = "alice"
REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"


def policy_of(services: str, head: str = "") -> LoadedPolicy:
    text = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{head}\nservices:\n{services}"
    return load(text.encode(), Purpose.SERVE).policy


def pod(labels: Json | None = None, annotations: Json | None = None, uid: str = "", **spec: Any) -> Json:
    """Build a Pod as the API server sends it; `uid` only in the validating half."""
    metadata: Json = {"generateName": "web-", "namespace": "shop"}
    if uid:
        metadata |= {"name": f"web-{uid}", "uid": uid}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": {}}], **spec},
    }


def envelope(**request: Any) -> Json:
    """Build an AdmissionReview. By default, alice creates a Pod in namespace `shop`."""
    usual: Json = {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": ALICE},
        "object": pod(),
        "oldObject": None,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": usual | request}


def body(**request: Any) -> bytes:
    return msgspec.json.encode(envelope(**request))


class CountingStore(MemoryStore):
    """The memory store, with a record of its acquire requests."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.requests: list[Acquire] = []

    async def acquire(self, request: Acquire) -> Receipt:
        self.requests.append(request)
        return await super().acquire(request)


class Gate:
    """An interceptor for one policy, with its clock and store."""

    def __init__(
        self,
        loaded: LoadedPolicy,
        policies: PolicySource | None = None,
        observers: Sequence[Observer] = (),
        namespace_labels: Mapping[str, str] | None = None,
    ) -> None:
        self.loaded = loaded
        self.compiled = CompiledPolicy(loaded)
        self.clock = VirtualClock(NOW_US)
        self.store = CountingStore(self.clock)
        self.uncounted: list[Acquire] = []
        """The Pods that were admitted although the store gave no answer."""
        self.interceptor = Interceptor(
            policies or FixedPolicy(loaded, self.clock),
            self.store,
            FixedNamespaces({"shop": dict(namespace_labels or {})}),
            Observers(*observers),
            on_uncounted=self.uncounted.append,
        )

    async def ask(self, half: Half, **request: Any) -> Answer:
        return await self.interceptor.review(half, body(**request))

    async def mutate(self, **request: Any) -> Decision:
        return (await self.ask(Half.MUTATE, **request)).decision

    async def validate(self, **request: Any) -> Decision:
        return (await self.ask(Half.VALIDATE, **request)).decision

    def build_owned_pod(self, uid: str = "", service: str = "web", **spec: Any) -> Json:
        """Build a Pod that has Podgate's label and hash."""
        labels = {"app": "web", "podgate.io/service": service}
        return pod(labels, {"podgate.io/policy-hash": self.loaded.hash}, uid, **spec)

    async def read_usage(self, service: str = "web") -> dict[str, int]:
        """Return the usage in the first window of a service."""
        plan = self.compiled.plans[service]
        uses = (await self.store.snapshot(plan)).uses.get("", ())
        return {use.resource: use.used for use in uses}
