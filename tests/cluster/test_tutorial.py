"""The tutorial, run as it is written: its commands, with other ports, on a control plane of its own."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.tutorial import ROOT, TUTORIAL, Terminal, find_blocks, install, make_folder, run_until
from tests.monitoring.programs import programs

INSTALL, _, *REST = find_blocks(TUTORIAL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with make_folder(tmp_path) as folder:
        yield folder


def test_the_tutorial_works_as_written(folder: Path) -> None:
    with install(folder, INSTALL) as (terminal, printed):
        assert "\nnamespace/podgate-system created\n" in printed
        assert not re.search(r"^\S+ changed$", printed, re.MULTILINE), "the cluster was empty"
        assert "proven: the API server calls Podgate" in printed
        follow(terminal)


def follow(terminal: Terminal) -> None:
    """Run the blocks after the installation."""
    apply, where, denied, watch, grant, wake, change, uninstall = REST
    terminal.run(apply)
    pods = run_until(terminal, where, r"(?s)(Running.*){5}")
    assert re.findall(r"node-\w+", pods) == re.findall(r"node-a\d", pods), "zone a only"
    assert "zone-a" in pods.partition("requiredDuringScheduling")[2]
    events = run_until(terminal, denied, "BreakerOpen")
    assert "QuotaExceeded: service web: pods in 1m: hard 5, used 5, asked 1; could pass from" in events
    shown = terminal.run(watch)  # who reads slowly finds it half open: it is open for 30 s
    assert re.search(r"web +(OPEN|HALF_OPEN) ", shown)
    assert re.search(r'podgate_breaker_state\{service="web",state="(OPEN|HALF_OPEN)"\} 1', shown)
    assert "web: grant" in terminal.run(grant)
    run_until(terminal, "podgate status web -o table", "CLOSED")
    assert "successfully rolled out" in terminal.run(wake)
    changed = terminal.run(change)
    assert re.search(r"policy-draft.yaml:\d+:\d+: .*many", changed)
    run_until(terminal, "podgate status web -o table", r"web +\S+ +CLOSED +1m +pods +\d+ +5[05] ")
    assert "namespace/podgate-system deleted" in terminal.run(uninstall)


def test_the_configuration_for_prometheus_is_valid() -> None:
    file = ROOT / "docs/examples/tutorial/prometheus.yaml"
    assert str(file.relative_to(ROOT)) in TUTORIAL
    subprocess.run([programs().promtool, "check", "config", file], check=True, capture_output=True)
