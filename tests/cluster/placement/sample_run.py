"""Run of a sample: all Pods are created and, unless denied, scheduled or found unschedulable."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.placement.review_tap import HALVES, Exchange, Tap
from tests.cluster.placement.sample import Case, is_for_a_scheduler_here, move_to_namespace
from tests.core.generating.vocabulary import NAMESPACE

Json = dict[str, Any]
UNMATCHED = "unmatched"
"""A namespace that no service matches."""
_RUNS_IN_FLIGHT_MAX = 8
_PODS = "/api/v1/namespaces/{}/pods"


@dataclass(frozen=True)
class Outcome:
    """One case: the API server's response, its calls to the mutating webhook, and the final Pod."""

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
    def is_denied_by_podgate(self) -> bool:
        return self.message.startswith('admission webhook "validate-closed.podgate.io" denied the request: ')

    @property
    def node(self) -> str | None:
        """The node of the Pod, if scheduled."""
        node_name: str | None = self.stored["spec"].get("nodeName") if self.stored else None
        return node_name


def wait_for_calls(plane: ControlPlane, tap: Tap, case: Case) -> None:
    """Wait until the API server calls both webhooks for a Pod of the sample."""

    def has_called_both() -> bool:
        tap.take_exchanges()
        plane.api.request("POST", f"{_PODS.format(NAMESPACE)}?dryRun=All", case.pod)
        return {exchange.half for exchange in tap.take_exchanges()} == set(HALVES)

    plane.wait(has_called_both, "the API server to call the webhooks for the sample", "kube-apiserver")


def run(plane: ControlPlane, tap: Tap, cases: list[Case]) -> list[Outcome]:
    """Create all Pods, and wait until each is scheduled or unschedulable."""
    tap.take_exchanges()
    pods_path = _PODS.format(NAMESPACE)
    with ThreadPoolExecutor(_RUNS_IN_FLIGHT_MAX) as pool:
        answers = list(pool.map(lambda case: plane.api.request("POST", pods_path, case.pod), cases))

    def find_settled_pods() -> list[Json] | None:
        pods: list[Json] = plane.api.get(pods_path)["items"]
        return pods if all(map(_is_settled, pods)) else None

    stored = {
        pod["metadata"]["name"]: pod
        for pod in plane.wait(find_settled_pods, "all Pods to be settled", "kube-scheduler")
    }
    mutations: dict[str, list[Exchange]] = {}
    for exchange in tap.take_exchanges():
        if exchange.half == "mutate":
            mutations.setdefault(exchange.name, []).append(exchange)
    return [
        Outcome(case, status, answer, mutations.get(case.name, []), stored.get(case.name))
        for case, (status, answer) in zip(cases, answers, strict=True)
    ]


def _is_settled(pod: Json) -> bool:
    has_verdict = any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", []))
    return has_verdict or "nodeName" in pod["spec"] or not is_for_a_scheduler_here(pod)


def rejection_without_podgate(plane: ControlPlane, pod: Json) -> str:
    """Return the API server's rejection of the same Pod in a namespace without a service; "" if it accepts the Pod."""
    status, answer = plane.api.request(
        "POST", f"{_PODS.format(UNMATCHED)}?dryRun=All", move_to_namespace(pod, UNMATCHED)
    )
    return "" if status == 201 else str(answer)


def delete_pods(plane: ControlPlane) -> None:
    """Delete all Pods of the sample at once, because their nodes are deleted too."""
    pods_path = _PODS.format(NAMESPACE)
    plane.api.request("DELETE", pods_path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    plane.wait(lambda: not plane.api.get(pods_path)["items"], "the Pods of the sample to go")
