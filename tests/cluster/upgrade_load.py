"""Clients that create Pods and workloads all the time while an installation is changed, and what must be true then."""

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from tests.cluster.controlplane import ControlPlane
from tests.cluster.ledger_log import LedgerLog
from tests.cluster.load import PLACEMENT
from tests.cluster.pod_log import GROUP, PodEvent, PodLog
from tests.timeouts import HANG_SECONDS

AMPLE, SCARCE, LEFT, RIGHT, BROKEN, APPS = "ample", "scarce", "left", "right", "broken", "apps"
NAMESPACES = (AMPLE, SCARCE, LEFT, RIGHT, BROKEN, APPS)
"""Each is the one of a service of the same name."""
POOL = "both"
HARD, WINDOW_SECONDS = 4, 8
"""Of the scarce service, and of the pool."""
WAITING_MAX = 3
LIMITS = {"scarce": (HARD, WINDOW_SECONDS), "both": (HARD, WINDOW_SECONDS), "broken": (1, 3600)}
"""Pods and seconds of the windows that are full, by tag."""
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {{name: {POOL}, windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {HARD}}}}}]}}
defaults: {{failureMode: Closed, {PLACEMENT}}}
services:
- name: {AMPLE}
  match: {{namespaces: [{AMPLE}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}]}}
- name: {SCARCE}
  match: {{namespaces: [{SCARCE}]}}
  quota: {{windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {HARD}}}}}]}}
- {{name: {LEFT}, match: {{namespaces: [{LEFT}]}}, pool: {POOL}}}
- {{name: {RIGHT}, match: {{namespaces: [{RIGHT}]}}, pool: {POOL}}}
- name: {BROKEN}
  match: {{namespaces: [{BROKEN}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
  breaker: {{quotaExceeded: {{count: 3, within: 1m, countBy: Request}}, openFor: 1h}}
- name: {APPS}
  match: {{namespaces: [{APPS}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}], standing: {{hard: {{pods: 500}}}}}}
"""
_QUOTA = f"quota: {{windows: [{{window: {WINDOW_SECONDS}s, hard: {{pods: {HARD}}}}}]"
QUEUED = POLICY.replace(_QUOTA, f"{_QUOTA}, whenExceeded: Queue, queue: {{maxPods: {WAITING_MAX}}}")
"""The same, but that Pods of the scarce service wait, which the former release does not know."""
TAGS = (AMPLE, SCARCE, POOL, BROKEN, APPS)
DENIALS = {
    SCARCE: {(429, "QuotaExceeded"), (429, "QueueFull")},
    LEFT: {(429, "QuotaExceeded")},
    RIGHT: {(429, "QuotaExceeded")},
    BROKEN: {(429, "QuotaExceeded"), (503, "BreakerOpen")},
}
"""Status and code of the denials that a service's Pods may get."""
REPLICAS = (3, 6)
_PAUSE_SECONDS = 0.5
_TAKEN_EVERY, _DELETED_EVERY = 4, 3
_DEPLOYMENT = "web"


@dataclass
class UpgradeLoad:
    """The clients, and the answers that they got."""

    plane: ControlPlane
    pods: PodLog
    ledger: LedgerLog
    admitted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """UIDs by namespace; without those of workloads."""
    denied: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seen: tuple[PodEvent, ...] = ()
    """The events of all Pods, those of workloads too; empty until the end."""
    taken: int = 0
    """Pods that were charged and then refused, because their names were taken."""
    rounds: Counter[int] = field(default_factory=Counter)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _names: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextmanager
    def run(cls, plane: ControlPlane, ledger: LedgerLog) -> Iterator[Self]:
        """Run all clients until the end of the block; wait for their last answers."""
        with ledger, PodLog(plane) as pods:
            load = cls(plane, pods, ledger)
            load._apply_deployment()
            clients = [load._fill_ample, load._fill_ample, load._scale]
            clients += [lambda name=name: load._create(name) for name in (SCARCE, SCARCE, LEFT, RIGHT, BROKEN)]
            load.rounds = Counter(dict.fromkeys(range(len(clients)), 0))
            with ThreadPoolExecutor(len(clients)) as threads:
                futures = [threads.submit(load._repeat, number, client) for number, client in enumerate(clients)]
                try:
                    yield load
                finally:
                    load._is_over.set()
                for future in futures:
                    future.result()
            plane.wait(load._has_seen_admitted, "the watch to show each admitted Pod")
            # Before the last record of the ledger, so that it has the charges of all of them.
            load.seen = tuple(pods.events)

    def wait_for_rounds(self, rounds: int) -> None:
        """Wait until each client has had so many answers more, all of which are right."""
        goals = {number: done + rounds for number, done in self.rounds.items()}

        def are_done() -> bool:
            assert not self.failures, "\n".join(self.failures)
            return all(self.rounds[number] >= goal for number, goal in goals.items())

        limit = HANG_SECONDS + 5 * rounds
        self.plane.wait(are_done, f"each client to have {rounds} answers more", timeout_seconds=limit)

    # --- clients ---

    def _repeat(self, number: int, client: Callable[[], None]) -> None:
        while not self._is_over.wait(_PAUSE_SECONDS):
            client()
            self.rounds[number] += 1

    def _fill_ample(self) -> None:
        """Create a Pod; at times create it again, which is charged and then refused, or delete it."""
        number = next(self._names)
        name = self._create(AMPLE)
        if name and number % _TAKEN_EVERY == 0:
            status, answer = self._request("POST", AMPLE, "pods", write_pod(name))
            self._expect((status, answer.get("reason")) == (409, "AlreadyExists"), AMPLE, status, answer)
            self.taken += 1
        if name and number % _DELETED_EVERY == 0:
            status, answer = self._request("DELETE", AMPLE, f"pods/{name}")
            self._expect(status == 200, AMPLE, status, answer)

    def _create(self, namespace: str) -> str:
        """Create a Pod; return its name if it was admitted."""
        name = f"pod-{next(self._names)}"
        status, answer = self._request("POST", namespace, "pods", write_pod(name))
        if status == 201:
            is_placed = answer["spec"].get("schedulerName") == "podgate-scheduler"
            self._expect(is_placed, namespace, status, answer)
            self.admitted[namespace].add(answer["metadata"]["uid"])
            return name
        code = read_code(answer)
        self._expect((status, code) in DENIALS.get(namespace, ()), namespace, status, answer)
        self.denied[f"{namespace}: {code}"] += 1
        return ""

    def _apply_deployment(self) -> None:
        labels = {"app": _DEPLOYMENT, GROUP: APPS}
        template = {"metadata": {"labels": labels}, "spec": write_pod("")["spec"]}
        spec = {"replicas": REPLICAS[0], "selector": {"matchLabels": {"app": _DEPLOYMENT}}, "template": template}
        metadata = {"name": _DEPLOYMENT, "namespace": APPS}
        self.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    def _scale(self) -> None:
        """Scale the Deployment up, and later down again."""
        replicas = REPLICAS[next(self._names) % 2]
        path = f"/apis/apps/v1/namespaces/{APPS}/deployments/{_DEPLOYMENT}/scale"
        patch = {"spec": {"replicas": replicas}}
        status, answer = self.plane.api.request("PATCH", path, patch, "application/merge-patch+json")
        self._expect(status == 200, APPS, status, answer)

    def _request(self, method: str, namespace: str, path: str, body: Any = None) -> tuple[int, Any]:
        # Twice the timeout of a webhook, so that a busy machine fails no request.
        path = f"/api/v1/namespaces/{namespace}/{path}?timeout=60s"
        return self.plane.api.request(method, path, body, timeout_seconds=HANG_SECONDS)

    def _expect(self, is_right: bool, namespace: str, status: int, answer: Any) -> None:  # noqa: FBT001  the result
        if not is_right:
            self.failures.append(f"{time.strftime('%H:%M:%S')} {namespace}: {status} {str(answer)[:600]}")

    # --- what must be true afterwards ---

    def list_pods(self, namespace: str) -> set[str]:
        """Return the UIDs of all Pods that ever were in a namespace."""
        return {event.uid for event in self.seen if event.namespace == namespace}

    def _has_seen_admitted(self) -> bool:
        self.pods.require()
        return set().union(*self.admitted.values()) <= {event.uid for event in tuple(self.pods.events)}

    def list_charges(self, tag: str) -> dict[str, set[int]]:
        """Return when each Pod was charged, in microseconds, by UID; more than one time is an error."""
        charges: dict[str, set[int]] = defaultdict(set)
        for state in self.ledger.states:
            for uid, charged_at in state.charges.items() if state.tag == tag else ():
                charges[uid].add(charged_at)
        return charges

    def list_wrong_counts(self) -> list[str]:
        """Return what is wrong with the charges of admitted Pods, and with the limits that held at each moment."""
        wrong = []
        for tag in TAGS:
            namespaces = (LEFT, RIGHT) if tag == POOL else (tag,)
            charges = self.list_charges(tag)
            existed = set().union(*(self.list_pods(namespace) for namespace in namespaces))
            answered = set().union(*(self.admitted[namespace] for namespace in namespaces))
            wrong += [f"{tag}: Pod {uid} was admitted, and was never seen" for uid in answered - existed]
            wrong += [f"{tag}: Pod {uid} was not charged" for uid in existed - charges.keys()]
            wrong += [f"{tag}: Pod {uid} was charged twice: {at}" for uid, at in charges.items() if len(at) > 1]
            if tag in LIMITS:
                hard, seconds = LIMITS[tag]
                most = count_most([at for uid in existed for at in charges[uid]], seconds)
                wrong += [f"{tag}: {most} Pods in a window, of {hard}"] if most > hard else []
        return wrong

    def list_failed_creations(self) -> list[str]:
        """Return the Events of workloads whose Pods could not be created."""
        found = self.plane.api.get(f"/api/v1/namespaces/{APPS}/events?fieldSelector=reason=FailedCreate")
        return [event["message"] for event in found["items"]]


def count_most(moments_us: list[int], seconds: int) -> int:
    """Return the largest number of moments in any trailing window."""
    ordered, first, most = sorted(moments_us), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= seconds * 1_000_000:
            first += 1
        most = max(most, last - first + 1)
    return most


def write_pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {GROUP: name}}, "spec": spec}


def read_code(answer: Any) -> str:
    """Return the code of a denial: the first word after the name of the webhook."""
    message = str(answer.get("message", ""))
    return message.partition("denied the request: ")[2].partition(":")[0]
