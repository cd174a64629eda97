"""Cost of shares: output of short runs, and that both services of a comparison are measured."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.bench import lineup, scenario, servers, shares
from tests.bench.comparison import Bench
from tests.bench.full import comparison
from tests.bench.policies import SHARES
from tests.bench.programs import go_programs
from tests.bench.scenario import DIVIDE, MUTATE
from tests.harness.server_process import Files


def test_a_review_with_shares_is_counted_beside_one_without() -> None:
    found = shares.measure_reviews(rounds=2, reviews=32)
    assert [review["store"] for review in found] == [servers.OWN, servers.OWN_MEMORY]
    assert all(review["opcodes"] > review["opcodes_without"] > 0 for review in found)
    assert all(review["times_without"].low > 0 and review["cpu_us_without"].low > 0 for review in found)
    assert ["redis_us" in review for review in found] == [True, False]
    again = shares.measure_reviews(rounds=1, reviews=32)
    assert [review["opcodes_without"] for review in found] == [review["opcodes_without"] for review in again]


async def test_the_call_with_shares_is_compared_with_the_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "WORKLOADS", 2)
    monkeypatch.setattr(servers, "TREE", None)
    bench = Bench(go_programs().loadgen, Files.create(tmp_path, SHARES), 1, 0.1, 0.05, 0.1)
    _, _, rows = await comparison(lineup.with_shares, bench)
    assert {row.scenario.case for row in rows} == {MUTATE, DIVIDE}
    calls = shares.list_calls(rows)
    stores, counts = (servers.OWN, servers.OWN_MEMORY), lineup.SHARES_CONNECTIONS
    assert [(call["server"], call["connections"]) for call in calls] == [
        (server, count) for count in counts for server in stores
    ]
    assert all(call["times_without"].low > 0 for call in calls)
    assert json.loads(msgspec.json.encode(calls))
    assert len(shares.render(calls, [])) == len(calls) + 2
