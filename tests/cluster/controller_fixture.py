"""Installation of Podgate with a controller, and its charges and refunds. Intervals are short."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.server import SHORT_INTERVALS, Server
from webhook.controller.reports import NAME_TAKEN
from webhook.core.quota import STANDING

MEMORY = "memory"
_STIRRER = "/api/v1/namespaces/default/pods"


@dataclass
class ControllerFixture:
    """An installation whose `store` is "memory", which a server reconciles, or the URL of a Redis, for controllers."""

    installation: Installation
    store: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def plane(self) -> ControlPlane:
        return self.installation.plane

    @property
    def controllers(self) -> Sequence[Server]:
        """The processes that reconcile: controllers, or servers with the memory store."""
        return self.installation.controllers or self.installation.servers

    def start_server(self) -> Server:
        """Start a server with a long store deadline, because the machine may be slow."""
        return self.installation.start_server("--drain", "0s", "--store", self.store, "--store-deadline", "10s")

    def start_controller(self) -> Server:
        return self.installation.start_controller("--store", self.store)

    def has_listed_pods(self) -> bool:
        """Whether the leader has listed all Pods."""
        return self.leader() is not None

    def leader(self) -> Server | None:
        """Return the process that reconciles now."""
        return next((controller for controller in self.controllers if leads(controller)), None)

    # --- counters ---

    def limit(self, service: str, window: str, resource: str = "pods") -> dict[str, Any]:
        """Return the status of one limit."""
        limits = {row["name"]: row for row in self.installation.servers[0].status()["services"]}[service]["windows"]
        [limit] = [limit for limit in limits if (limit["window"], limit["resource"]) == (window, resource)]
        return dict(limit)

    def count_used(self, service: str) -> int:
        """Return how many Pods are charged within the hour."""
        return int(self.limit(service, "1h")["used"])

    def count_standing(self, service: str) -> int:
        """Return how many Pods are counted as live."""
        return int(self.limit(service, STANDING)["used"])

    def count_refunded(self, service: str, cause: str = "") -> int:
        return self._total("quota_refunds_total", service, f'cause="{cause}' if cause else "")

    def count_unproven(self, service: str) -> int:
        return self._total("refunds_unproven_total", service)

    def count_charged_afterwards(self, service: str) -> int:
        return self._total("charged_afterwards_total", service)

    def _total(self, name: str, service: str, label: str = "") -> int:
        labels = f'service="{service}"', label
        return int(sum(controller.total(f"podgate_{name}", *labels) for controller in self.controllers))

    # --- waiting ---

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait while another Pod changes, because refunds follow watch events."""

        def change_pod_and_check() -> Any:
            self._change_another_pod()
            return condition()

        return self.plane.wait(
            change_pod_and_check,
            what,
            *(process.name for process in (*self.installation.servers, *self.installation.controllers)),
        )

    def settle(self, service: str, namespace: str, lost: int) -> None:
        """Wait until all earlier charges are decided: one more Pod is lost, after `lost` others, and refunded last."""
        self.lose(namespace)
        self.wait(lambda: self.count_refunded(service, NAME_TAKEN) > lost, f"the Pods of {service} to be settled")

    def lose(self, namespace: str, name: str = "taken") -> None:
        """Create a Pod with an existing name, which is charged and then rejected; the first call creates that Pod."""
        status, response = self.installation.create_pod(namespace, name)
        if status == 201:
            status, response = self.installation.create_pod(namespace, name)
        assert (status, response["reason"]) == (409, "AlreadyExists"), response

    def _change_another_pod(self) -> None:
        metadata = {"name": "stirrer", "annotations": {"stirred": str(next(self._numbers))}}
        path = f"{_STIRRER}/stirrer"
        status, response = self.plane.api.request("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")
        if status == 404:
            spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            status, response = self.plane.api.request("POST", _STIRRER, pod)
        assert status in {200, 201}, response


def leads(process: Server) -> bool:
    """Whether a process reconciles now, and has listed all Pods."""
    return "podgate_watched_pods" in process.metrics()


@contextmanager
def controller_fixture(
    plane: ControlPlane, identities: Identities, policy: str, namespaces: Sequence[str], store: str = MEMORY
) -> Iterator[ControllerFixture]:
    """Install Podgate with short intervals, wait until webhooks are called and all Pods are listed; uninstall it."""
    with install_podgate(plane, identities.files, policy, namespaces, servers=0) as installation:
        installation.program = SHORT_INTERVALS
        running = ControllerFixture(installation, store)
        running.start_server()
        if store != MEMORY:
            running.start_controller()
        installation.wait_for_calls()
        running.wait(running.has_listed_pods, "all Pods to be listed")
        yield running
