"""Run of a sample: all Pods are created, and watched until the scheduler has decided."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.placement.review_tap import HALVES, Exchange, Tap
from tests.cluster.placement.sample import Case, elsewhere, is_for_a_scheduler_here
from tests.core.generating.vocabulary import NAMESPACE

Json = dict[str, Any]
UNMATCHED = "unmatched"
"""A namespace that no service is asked about."""
_AT_ONCE = 8
_PODS = "/api/v1/namespaces/{}/pods"


@dataclass(frozen=True)
class Outcome:
    """One case: what the API server answered, what passed between it and us, and the Pod in the end."""

    case: Case
    status: int
    answer: Json
    mutations: list[Exchange]
    stored: Json | None

    @property
    def message(self) -> str:
        return str(self.answer.get("message", ""))

    @property
    def is_admitted(self) -> bool:
        return self.status == 201

    @property
    def is_denied_by_us(self) -> bool:
        return self.message.startswith('admission webhook "validate-closed.podgate.io" denied the request: ')

    @property
    def node(self) -> str | None:
        """Where the Pod is, if anywhere."""
        found: str | None = self.stored["spec"].get("nodeName") if self.stored else None
        return found


def wait_asked(plane: ControlPlane, tap: Tap, case: Case) -> None:
    """Wait until the API server asks both halves about a Pod of the sample."""

    def asked() -> bool:
        tap.taken()
        plane.api.request("POST", f"{_PODS.format(NAMESPACE)}?dryRun=All", case.pod)
        return {exchange.half for exchange in tap.taken()} == set(HALVES)

    plane.wait(asked, "the API server to ask about the sample", "kube-apiserver")


def run(plane: ControlPlane, tap: Tap, cases: list[Case]) -> list[Outcome]:
    """Create every Pod, and wait until each is on a node or known to fit none."""
    tap.taken()
    where = _PODS.format(NAMESPACE)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda case: plane.api.request("POST", where, case.pod), cases))

    def settled() -> list[Json] | None:
        pods: list[Json] = plane.api.get(where)["items"]
        return pods if all(map(_is_settled, pods)) else None

    stored = {pod["metadata"]["name"]: pod for pod in plane.wait(settled, "all Pods to be settled", "kube-scheduler")}
    mutations: dict[str, list[Exchange]] = {}
    for exchange in tap.taken():
        if exchange.half == "mutate":
            mutations.setdefault(exchange.name, []).append(exchange)
    return [
        Outcome(case, status, answer, mutations.get(case.name, []), stored.get(case.name))
        for case, (status, answer) in zip(cases, answers, strict=True)
    ]


def _is_settled(pod: Json) -> bool:
    has_verdict = any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", []))
    return has_verdict or "nodeName" in pod["spec"] or not is_for_a_scheduler_here(pod)


def refusal_without_us(plane: ControlPlane, pod: Json) -> str:
    """Return what the API server has against the same Pod where no service is asked; empty where it takes it."""
    status, answer = plane.api.request("POST", f"{_PODS.format(UNMATCHED)}?dryRun=All", elsewhere(pod, UNMATCHED))
    return "" if status == 201 else str(answer)


def empty(plane: ControlPlane) -> None:
    """Take all Pods of the sample away: their nodes go too, and nobody would end them there."""
    where = _PODS.format(NAMESPACE)
    plane.api.request("DELETE", where, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    plane.wait(lambda: not plane.api.get(where)["items"], "the Pods of the sample to go")
