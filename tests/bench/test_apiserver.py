"""Creation of Pods at a real API server: output of a short run."""

from pathlib import Path

from tests.bench.apiserver import creation
from tests.bench.apiserver.webhooks import WAYS
from tests.harness.server_process import Files


async def test_each_way_is_measured_with_few_and_many_clients(tmp_path: Path) -> None:
    lines, figures = await creation.creation(Files.create(tmp_path), 1, 0.2)

    assert len(lines) == 1 + len(figures)
    assert [(row["way"], row["clients"]) for row in figures] == [
        (way.name, clients) for clients in creation.CLIENTS for way in WAYS
    ]
    assert all(row["p50_ratio"].median > 0 and row["cpu_us"]["kube-apiserver"] > 0 for row in figures)
    assert {row["way"] for row in figures if row["cpu_us"]["server"] == 0} == {"none"}
