"""The tutorial of docs/shares.md, run as it is written on a control plane of its own: divided, gone and back."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.tutorial import ROOT, TUTORIAL, Terminal, find_blocks, install, make_folder
from tests.timeouts import HANG_SECONDS

PAGE = (ROOT / "docs" / "shares.md").read_text().partition("\n## Tutorial")[2]
(INSTALL,) = re.findall(r"^```\n(podgate install .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
POLICY = "docs/examples/shares/tutorial-policy.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with make_folder(tmp_path) as folder:
        yield folder


def count_variants(printed: str) -> Counter[str]:
    """Count the last column of the last table of Pods; those that end are not counted."""
    table = printed.rpartition("NAME ")[2].splitlines()[1:]
    return Counter(line.split()[-1] for line in table if line.startswith("web-") and "Terminating" not in line)


def test_spot_is_divided_goes_and_comes_back(folder: Path) -> None:
    assert f"--policy {POLICY}" in INSTALL
    commands = re.sub(r"podgate install .*\n", INSTALL, find_blocks(TUTORIAL)[0])
    with install(folder, commands) as (terminal, printed):
        assert "proven: the API server calls Podgate" in printed
        follow(terminal)


def follow(terminal: Terminal) -> None:
    begin, scale, gone, back = find_blocks(PAGE)
    assert count_variants(terminal.run(begin)) == {"spot": 6, "on-demand": 4}
    assert count_variants(terminal.run(scale)) == {"spot": 2, "on-demand": 2}
    printed = terminal.run(gone)
    assert count_variants(printed.partition("SERVICE")[0]) == {"spot": 2, "on-demand": 8}
    assert re.search(r"web/spot +(OPEN|HALF_OPEN) ", printed)
    printed = terminal.run(back)
    assert "successfully rolled out" in printed
    assert count_variants(printed.partition("SERVICE")[0])["spot"] >= 1
    ends_at = time.monotonic() + HANG_SECONDS
    while re.search(r"web/spot +HALF_OPEN ", printed) and time.monotonic() < ends_at:
        time.sleep(1)  # the last probe has started, and a busy machine has not told it yet
        printed = terminal.run("podgate breaker list -o table")
    assert re.search(r"web/spot +CLOSED ", printed)
