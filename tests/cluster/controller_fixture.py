"""Podgate with a controller, its charges and refunds. Intervals are short."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import LEASE, Installation, installed
from tests.cluster.server import SHORT_INTERVALS, Server
from webhook.controller.reports import NAME_TAKEN
from webhook.core.quota import STANDING

MEMORY = "memory"
_STIRRER = "/api/v1/namespaces/default/pods"


@dataclass
class ControllerFixture:
    """An installation whose `store` is "memory", which a server reconciles, or the URL of a Redis, for controllers."""

    found: Installation
    store: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def plane(self) -> ControlPlane:
        return self.found.plane

    @property
    def controllers(self) -> Sequence[Server]:
        """Whoever says what was given back."""
        return self.found.controllers or self.found.servers

    def start_server(self) -> Server:
        """Start one that waits for its store: an answer that is late on a busy machine is still one."""
        return self.found.start_server("--drain", "0s", "--store", self.store, "--store-deadline", "10s")

    def start_controller(self) -> Server:
        return self.found.start_controller("--store", self.store)

    def watches(self) -> bool:
        """Whether somebody has listed all Pods."""
        return self.leader() is not None

    def leader(self) -> Server | None:
        """Return who reconciles now."""
        return next((one for one in self.controllers if leads(one)), None)

    # --- what is counted ---

    def limit(self, service: str, window: str, resource: str = "pods") -> dict[str, Any]:
        """Return how one limit stands."""
        shown = {one["name"]: one for one in self.found.servers[0].status()["services"]}[service]["windows"]
        [limit] = [one for one in shown if (one["window"], one["resource"]) == (window, resource)]
        return dict(limit)

    def used(self, service: str) -> int:
        """Return how many Pods are charged within the hour."""
        return int(self.limit(service, "1h")["used"])

    def standing(self, service: str) -> int:
        """Return how many Pods stand as live."""
        return int(self.limit(service, STANDING)["used"])

    def refunded(self, service: str, cause: str = "") -> int:
        return self._total("quota_refunds_total", service, f'cause="{cause}' if cause else "")

    def unproven(self, service: str) -> int:
        return self._total("refunds_unproven_total", service)

    def charged_afterwards(self, service: str) -> int:
        return self._total("charged_afterwards_total", service)

    def _total(self, name: str, service: str, label: str = "") -> int:
        labels = f'service="{service}"', label
        return int(sum(one.total(f"podgate_{name}", *labels) for one in self.controllers))

    # --- waiting ---

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait while other Pods change: who is missing is given back with the watch's next word."""

        def stirred() -> Any:
            self._stir()
            return condition()

        return self.plane.wait(stirred, what, *(one.name for one in (*self.found.servers, *self.found.controllers)))

    def settle(self, service: str, namespace: str, lost: int) -> None:
        """Wait until all is decided that has been charged by now, oldest first: one more is lost, beside so many."""
        self.lose(namespace)
        self.wait(lambda: self.refunded(service, NAME_TAKEN) > lost, f"the Pods of {service} to be settled")

    def lose(self, namespace: str, name: str = "taken") -> None:
        """Have a Pod charged whose name is taken. The first time there comes to be one that has it."""
        status, response = self.found.create_pod(namespace, name)
        if status == 201:
            status, response = self.found.create_pod(namespace, name)
        assert (status, response["reason"]) == (409, "AlreadyExists"), response

    def _stir(self) -> None:
        metadata = {"name": "stirrer", "annotations": {"stirred": str(next(self._numbers))}}
        path = f"{_STIRRER}/stirrer"
        status, response = self.plane.api.request("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")
        if status == 404:
            spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            status, response = self.plane.api.request("POST", _STIRRER, pod)
        assert status in {200, 201}, response


def leads(one: Server) -> bool:
    """Whether it reconciles now, and has listed all Pods."""
    return "podgate_watched_pods" in one.metrics()


@contextmanager
def controller_fixture(
    plane: ControlPlane, identities: Identities, policy: str, namespaces: Sequence[str], store: str = MEMORY
) -> Iterator[ControllerFixture]:
    """Install Podgate with short times, wait until it acts and has listed all Pods, and take it all away again."""
    with installed(plane, identities.files, policy, namespaces, servers=0) as found:
        found.program = SHORT_INTERVALS
        running = ControllerFixture(found, store)
        running.start_server()
        if store != MEMORY:
            running.start_controller()
        found.wait_asked()
        running.wait(running.watches, "all Pods to be listed")
        yield running
    plane.kubectl("delete", "lease", LEASE, "-n", NAMESPACE, "--ignore-not-found")
