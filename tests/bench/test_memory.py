"""Memory of servers by the reviews that they have answered."""

from pathlib import Path

import pytest

from tests.bench import memory
from tests.bench.policies import POLICY
from tests.bench.programs import go_programs
from tests.bench.servers import OWN, OWN_MEMORY
from tests.harness.server_process import Files


async def test_a_server_is_measured_when_it_has_answered_so_many_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_TURN_SECONDS", 0.1)
    (title, *lines), rows = await memory.measure_reviews(go_programs().loadgen, Files.create(tmp_path, POLICY), (0, 20))

    assert "MiB" in title
    assert [row["name"] for row in rows] == [OWN, OWN_MEMORY]
    assert [list(row["rss_mib"]) for row in rows] == [["0", "20"]] * 2
    assert all(30 < mib < 300 for row in rows for mib in row["rss_mib"].values())
    assert all("after 20" in line for line in lines)
