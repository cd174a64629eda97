"""Pressure from PSI by real node_exporters and a Prometheus with TLS and a password to a refusal by kube-scheduler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from certs.authority import Authority, list_server_names
from certs.ca_generations import encode_pem
from certs.files import write_key_pair
from tests.monitoring.prometheus_server import PrometheusServer
from tests.scheduling.extender_server import EXTENDER, ExtendedScheduler
from tests.scheduling.kernel_pressure import (
    KERNEL,
    WrittenPressure,
    compete_for_cpu,
    has_pressure,
    link_kernel_files,
    start_exporters,
)

REPLICA = "extender-with-pressure"
KERNELS, WRITTEN, WITHOUT = "warm-1", "warm-2", "cool"
"""Nodes with the pressure of this machine's kernel, one that a test writes, and none."""
USER, PASSWORD = "podgate", "a password of a test"
BCRYPT = "$2b$04$GNEkMViLcuAu40WD16347.ExoBLc4KOxpfhoc.exDARn7FWcNAkOS"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
nodes:
  refresh: 1s
  window: 4s
  decay: {{every: 2s}}
  staleAfter: 30s
  sources:
  - prometheus:
      url: "{url}"
      caFile: {folder}/ca.crt
      basicAuth: {{usernameFile: {folder}/username, passwordFile: {folder}/password}}
services:
- name: cpu
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: cpu}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{pressure: {{cpu: 0.5}}}}
- name: memory
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: memory}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{pressure: {{memory: 0.1}}}}
- name: io
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: io}}}}}}
  placement: {{schedulerName: podgate-scheduler}}
  scheduling: {{pressure: {{io: 0.1}}}}
"""


class Pressed:
    """The scheduler, which asks a replica that reads the exporters only, and the pressure that a test writes."""

    def __init__(self, scheduler: ExtendedScheduler, written: WrittenPressure, password: Path) -> None:
        self.scheduler = scheduler
        self.written = written
        self.password = password
        """File with the password for Prometheus; a wrong one at first."""

    def read(self, node: str, name: str) -> float | None:
        """Return a pressure of a node as the extender knows it."""
        load = self.scheduler.nodes(REPLICA)[node]["load"]
        value: float | None = load[f"{name}_pressure"]
        return value

    def wait_until_above(self, node: str, name: str, share: float) -> None:
        self.scheduler.plane.wait(lambda: (self.read(node, name) or 0.0) > share, f"{name} of {node}", REPLICA)


@pytest.fixture(scope="module")
def pressed(scheduler: ExtendedScheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pressed]:
    folder, processes = tmp_path_factory.mktemp("pressure"), scheduler.plane.processes
    without = folder / "without"
    without.mkdir()
    link_kernel_files(without)
    authority = Authority.create("prometheus")
    pair = authority.issue_server("prometheus", list_server_names("127.0.0.1"))
    write_key_pair(pair, folder / "tls.crt", folder / "tls.key")
    (folder / "ca.crt").write_bytes(encode_pem(authority.key_pair.certificate))
    (folder / "username").write_text(USER)
    (folder / "password").write_text("another")
    with WrittenPressure(folder / "written") as written:
        job = start_exporters(processes, {KERNELS: KERNEL, WRITTEN: written.folder, WITHOUT: without})
        tls = {"cert_file": str(folder / "tls.crt"), "key_file": str(folder / "tls.key")}
        web = {"tls_server_config": tls, "basic_auth_users": {USER: BCRYPT}}
        prometheus = PrometheusServer(processes, [job], "prometheus-with-password", web)
        prometheus.start()
        policy = folder / "policy.yaml"
        policy.write_text(POLICY.format(url=prometheus.url, folder=folder))
        scheduler.start_extender(REPLICA, policy=policy)
        scheduler.balance(REPLICA)
        scheduler.balancer.cut()
        yield Pressed(scheduler, written, folder / "password")
        scheduler.balance(EXTENDER)
        scheduler.stop_extender(REPLICA)
        prometheus.stop()
        for node in (KERNELS, WRITTEN, WITHOUT):
            processes.stop(f"exporter-{node}")
    scheduler.delete_all()
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", EXTENDER)


@pytest.fixture(scope="module", autouse=True)
def measured(pressed: Pressed) -> None:
    """Wait until the loads are known, once the password is right."""
    plane = pressed.scheduler.plane
    refused = "HTTP 401: it wants another token, or user and password"
    plane.wait(lambda: refused in plane.log(REPLICA, 1000), "a refused password", REPLICA)
    assert all(node["load"] is None for node in pressed.scheduler.nodes(REPLICA).values())
    pressed.password.write_text(f"{PASSWORD}\n")

    def is_measured() -> bool:
        nodes = pressed.scheduler.nodes(REPLICA)
        return all(nodes[name]["load"] is not None for name in (KERNELS, WRITTEN, WITHOUT))

    plane.wait(is_measured, "the loads", REPLICA)


def test_node_whose_kernel_lets_tasks_wait_for_cpu_is_refused(pressed: Pressed) -> None:
    if not has_pressure(KERNEL):
        assert pressed.read(KERNELS, "cpu") is None, "a kernel without PSI has no pressure"
        return
    with compete_for_cpu():
        pressed.wait_until_above(KERNELS, "cpu", 0.7)
        pressed.scheduler.create("kernel-cpu", "cpu", only=KERNELS)
        assert "1 node(s) above the cpu pressure threshold 0.5" in pressed.scheduler.wait_until_refused("kernel-cpu")


@pytest.mark.parametrize("name", ["memory", "io"])
def test_node_whose_tasks_stand_still_is_refused_until_its_pressure_falls(pressed: Pressed, name: str) -> None:
    pressed.written.set(name, 0.4)
    pressed.wait_until_above(WRITTEN, name, 0.3)
    pod = f"pressed-by-{name}"
    pressed.scheduler.create(pod, name, only=WRITTEN)
    assert f"1 node(s) above the {name} pressure threshold 0.1" in pressed.scheduler.wait_until_refused(pod)
    pressed.written.set(name, 0.0)
    assert pressed.scheduler.wait_until_bound(pod) == WRITTEN


def test_node_whose_kernel_has_no_pressure_is_not_refused(pressed: Pressed) -> None:
    for name in ("cpu", "memory", "io"):
        assert pressed.read(WITHOUT, name) is None
        pressed.scheduler.create(f"without-{name}", name, only=WITHOUT)
        assert pressed.scheduler.wait_until_bound(f"without-{name}") == WITHOUT
