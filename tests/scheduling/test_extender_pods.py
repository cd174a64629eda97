"""Extender Pods through a real API server's port-forward: two replicas, one of them, and none without the right."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster.forwarded_pods import FORWARDS, grant, run_pods
from tests.cluster.kubelet_ports import kubelet_ports
from tests.scheduling.extender_server import EXTENDER, NAMESPACE, OTHER, SECOND, ExtendedScheduler

pytestmark = pytest.mark.usefixtures("other")

PODS = {"podgate-extender-a": EXTENDER, "podgate-extender-b": OTHER}
READS = {"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list"]}


@pytest.fixture(scope="module")
def forwarded(scheduler: ExtendedScheduler) -> Iterator[ExtendedScheduler]:
    """Run both replicas as Pods, and let the scheduler ask each of them about one Pod."""
    plane, pki = scheduler.plane, scheduler.plane.folder / "pki"
    for replica in (EXTENDER, OTHER):
        plane.wait(lambda replica=replica: scheduler.is_hot("hot", replica), "the load", replica)
    scheduler.balance(EXTENDER)
    restart(scheduler, ignorable=False)  # a call that takes too long on a busy machine must not let the Pod run
    scheduler.create("asked", only="hot")
    plane.wait(lambda: scheduler.record("asked"), "the first replica to be asked", EXTENDER)
    scheduler.balance(OTHER)
    restart(scheduler, ignorable=False)  # it tries all waiting Pods, over new connections
    plane.wait(lambda: scheduler.record("asked", OTHER), "the other replica to be asked", OTHER)
    ports = {(pod, 8083): scheduler.decisions(replica) for pod, replica in PODS.items()}
    with (
        kubelet_ports(pki / "apiserver.crt", pki / "apiserver.key", ports) as port,
        run_pods(plane, "podgate-extender", [*PODS], port),
    ):
        yield scheduler
    scheduler.delete_all()
    restart(scheduler)


def restart(scheduler: ExtendedScheduler, **extender: bool) -> None:
    scheduler.plane.processes.stop(SECOND)
    scheduler.start_scheduler(**extender)


def run_as_user(kubeconfig: Path, *command: str) -> Done:
    return podgate(*command, "--kubeconfig", kubeconfig)


def test_explain_merges_the_records_of_both_replicas_and_says_which_one_does_not_answer(
    forwarded: ExtendedScheduler,
) -> None:
    operator = grant(forwarded.plane, "operator", READS, FORWARDS, everywhere=True)
    explain = ("explain", "pod", "asked", "-n", NAMESPACE)

    def is_merged() -> bool:
        both = [forwarded.record("asked", replica) for replica in (EXTENDER, OTHER)]
        found = run_as_user(operator, *explain, "-o", "json").document["extender"]
        newest = max(both, key=lambda record: str(record["at"]))
        return bool(
            found["filter"] == newest["filter"] and found["attempts"] == sum(record["attempts"] for record in both)
        )

    forwarded.plane.wait(is_merged, "the records of both", OTHER)
    shown = run_as_user(operator, "nodes", "hot", "-o", "table")
    assert (shown.out.splitlines()[1].split()[0], shown.err) == ("hot", "extender: podgate-extender-a, one of 2\n")
    forwarded.stop_extender(EXTENDER, kill=True)
    try:
        page = run_as_user(operator, *explain).out
        shown = run_as_user(operator, "nodes", "hot")
    finally:
        forwarded.start_extender(EXTENDER)
    away = "not read    extender: pod podgate-system/podgate-extender-a, port 8083: error forwarding port 8083"
    refusal = r"refused by podgate-extender( \d+ s ago)?: 1 node above the cpu hot threshold 0\.8 \(hot "
    assert re.match(f"Unschedulable: {refusal}", page)
    assert away in page
    assert (shown.code, shown.err) == (0, "extender: podgate-extender-b, one of 2\n")


def test_right_to_port_forward_decides_who_reads_loads_and_records(forwarded: ExtendedScheduler) -> None:
    reader = grant(forwarded.plane, "reader", READS, everywhere=True)
    remedy = "grant the right to create pods/portforward in podgate-system"
    shown = run_as_user(reader, "nodes")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.count(remedy) == len(PODS)
    page = run_as_user(reader, "explain", "pod", "asked", "-n", NAMESPACE).out
    assert "1 node(s) above the cpu hot threshold 0.8" in page, "the Event has it too"
    assert "not read    extender: no extender answers" in page
    assert remedy in page
