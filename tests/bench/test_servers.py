"""Comparison of servers: output of a short run, decisions of the compared servers, and checks of the generator."""

import copy
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.bench import idle, lineup, scenario, servers
from tests.bench.calls import Caller, placement
from tests.bench.comparison import Bench, Row
from tests.bench.full import comparison
from tests.bench.generator import Call, Credentials, Expect, Latency, Load, Measured, generate
from tests.bench.policies import POLICY
from tests.bench.programs import MODULE, go_programs
from tests.bench.quick import quick, summary
from tests.bench.real_redis import real_redis
from tests.bench.report import list_objects
from tests.bench.results import read, record
from tests.bench.scenario import BOTH, CASES, CONNECTIONS, MUTATE, OVER_QUOTA, UNMATCHED_POD, VALIDATE, Case, Scenario
from tests.bench.servers import Target, Variant
from tests.bench.spread import Spread
from tests.bench.telemetry import Rates, rates, trace_receiver, unlike
from tests.bench.traffic import Workload, encode_mutating_review, encode_validating_review, place, user_pod
from tests.cluster.binaries import cache
from tests.cluster.toolchain import go, run_go
from tests.harness.server_process import TREE, Files
from tests.redis_servers import RedisServer
from webhook.commands.simulator import apply_patch
from webhook.core.admission.decision import Half

TINY_SECONDS = 0.1


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with real_redis() as server:
        yield server


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.create(tmp_path, POLICY)


@pytest.fixture(autouse=True)
def few_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "WORKLOADS", 2)


@pytest.fixture(autouse=True)
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork Podgate's servers from an interpreter that has imported it, except those of another commit."""
    monkeypatch.setattr(servers, "TREE", None)


@asynccontextmanager
async def go_target(files: Files, redis: RedisServer | None = None) -> AsyncIterator[tuple[Target, Caller]]:
    """Run the Go webhooks; the last one is the target."""
    async with aiohttp.ClientSession() as session, servers.go_webhooks(go_programs(), files, redis) as targets:
        yield targets[-1], Caller(session, files, targets[-1])


def tiny_bench(files: Files) -> Bench:
    return Bench(go_programs().loadgen, files, 1, TINY_SECONDS, TINY_SECONDS / 2, TINY_SECONDS)


async def test_comparison_measures_every_server_in_its_scenarios(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineup, "OTHER_SIZES", (65_000,))
    lines, figures, _ = await comparison(lineup.every_server, tiny_bench(files), TREE, with_kopf=False)

    rows = json.loads(msgspec.json.encode(figures))["rows"]
    own = [servers.OWN, servers.OWN_MEMORY, f"{servers.OWN}, before"]
    in_go = [servers.GO, servers.GO_FULL, "controller-runtime"]
    constant = [servers.AIOHTTP, servers.AIOHTTP_SERVER, "go, constant"]
    of_case = {case.name: [*own, *in_go] for case in CASES} | {
        MUTATE.name: [*own, *in_go, *constant],
        UNMATCHED_POD.name: [*own, servers.GO],
        **{case.name: own for case in CASES if case.refusal},
    }
    usual = [row for row in rows if Scenario(CASES[0]).pod_bytes == row["pod_bytes"] and not row["own_images"]]
    assert {case.name: [row["server"] for row in usual if row["case"] == case.name] for case in CASES} == of_case
    assert all(row["cpu_us"]["low"] > 0 and row["generator_cpu_us"]["low"] > 0 for row in rows)
    assert all(row["ratio"][servers.GO]["median"] > 0 for row in rows if row["server"] in own)
    assert sum(line.startswith("  podgate") for line in lines) >= len([row for row in rows if row["server"] in own])


@pytest.mark.parametrize(
    ("name", "values", "field", "expected"),
    [
        ("rates", (100,), "rate", {0, 100}),
        ("services", (1, 40), "services", {0, 1, 40}),
        ("windows", (1, 16), "windows", {1, 16}),
        ("containers", (200,), "containers", {3, 200}),
        ("connections", (1,), "connections", {1, 16}),
        ("processes", None, "server", {servers.OWN, servers.OWN_TWO, servers.GO}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_comparison_of_growth_measures_each_value(
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: tuple[int, ...] | None,
    field: str,
    expected: set[object],
) -> None:
    if values:
        monkeypatch.setattr(lineup, name.upper(), values)
    _, figures, _ = await comparison(lineup.COMPARISONS[name], tiny_bench(files))

    rows = json.loads(msgspec.json.encode(figures))["rows"]
    assert {row[field] for row in rows} == expected
    assert {row["case"] for row in rows} == {MUTATE.name, VALIDATE.name}
    assert all(row["times_unit"]["median"] > 0 for row in rows)
    assert any(row["new_connections"] for row in rows) == (name == "connections")


async def test_refusals_are_measured_while_the_breaker_remembers_one_fewer_than_opens_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineup, "REFUSALS", (4,))
    _, figures, _ = await comparison(lineup.COMPARISONS["refusals"], tiny_bench(files))

    rows = json.loads(msgspec.json.encode(figures))["rows"]
    refused = [(row["server"], row["controllers"]) for row in rows if row["case"] == OVER_QUOTA.name]
    assert refused == [(servers.OWN, 3), (servers.OWN_MEMORY, 3)]
    assert all(row["times_unit"]["median"] > 0 for row in rows)


async def test_idle_servers_are_measured_after_each_service_had_a_pod(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "SERVICES", (1, 3))
    (title, *lines), rows = await idle.measure_rounds(files, rounds=2, seconds=1.0, settle_seconds=0.0)

    stores = (servers.OWN, servers.OWN_MEMORY)
    expected = [f"{store}, {services}" for services in ("1 service", "3 services") for store in stores]
    assert [row["name"] for row in rows] == expected
    assert [line[2:38].rstrip() for line in lines] == expected
    assert all(row["server_ms"].high > 0 for row in rows), "a server evaluates its breakers each second"
    assert ["redis_ms" in row for row in rows] == [True, False] * 2
    assert "2 rounds" in title


async def test_load_on_two_processes_reaches_both(files: Files) -> None:
    """Their requests would otherwise be those of one process."""
    async with trace_receiver() as traces, AsyncExitStack() as stack:
        stage = lineup.Stage(stack, files, traces)
        await tiny_bench(files).measure([row for row in await lineup.two_processes(stage) if row.target.others])
        reviews = [(await rates(traces, number, target)).reviews for number, target in enumerate(stage.own)]
    assert min(reviews) >= CONNECTIONS // 2


def test_results_of_a_part_replace_only_its_own(tmp_path: Path) -> None:
    path = tmp_path / "results" / "bench.json"
    for part, figures in (("one", [1]), ("other", [2]), ("one", [3])):
        record(part, figures, path)
    results = read(path)
    assert {part: results[part]["figures"] for part in results} == {"one": [3], "other": [2]}
    assert all(results[part]["date"] and "cores" in results[part]["machine"] for part in results)


async def test_last_line_of_the_quick_form_has_the_ratios() -> None:
    lines = await quick(rounds=1, seconds=TINY_SECONDS, with_kopf=False)

    summary = json.loads(lines[-1])
    ratio = summary["ratio"]
    assert set(summary) == {"reviews_per_cpu_second", "ratio"}
    assert set(ratio) == {"go", "aiohttp", "kopf"}
    assert set(ratio["go"]) == {"mutate", "validate", "both", "unmatched"}
    assert min(*ratio["go"].values(), ratio["aiohttp"], summary["reviews_per_cpu_second"]) > 0


def _shapes() -> Iterator[dict[str, Any]]:
    """Return Pods with and without the fields that the placement changes."""
    pod = user_pod(Workload())
    yield pod
    for missing in ("affinity", "tolerations"):
        yield {**pod, "spec": {name: value for name, value in pod["spec"].items() if name != missing}}
    yield place(pod)
    two = copy.deepcopy(pod)
    terms = two["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms["nodeSelectorTerms"].append({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]})
    yield two


async def test_go_webhooks_give_pods_the_placement_of_podgate(redis: RedisServer, files: Files) -> None:
    programs = go_programs()
    async with (
        trace_receiver() as traces,
        servers.podgate(Variant("podgate"), files, traces.endpoint("0")) as podgate,
        servers.go_webhooks(programs, files, redis) as in_go,
        servers.controller_runtime(programs, files) as controller_runtime,
        aiohttp.ClientSession() as session,  # the last: servers wait for the end of its connections
    ):
        own, *others = [Caller(session, files, target) for target in (podgate, *in_go, controller_runtime)]
        for pod in _shapes():
            review = encode_mutating_review(Workload(), pod)
            expected = placement(apply_patch(pod, await own.ask(Half.MUTATE, review)))
            assert [placement(apply_patch(pod, await server.ask(Half.MUTATE, review))) for server in others] == [
                expected
            ] * 3


@pytest.mark.parametrize("field", ["schedulerName", "affinity", "tolerations"])
async def test_go_webhooks_deny_a_pod_without_the_placement(files: Files, field: str) -> None:
    pod = user_pod(Workload())
    lacking = place(pod)
    lacking["spec"][field] = pod["spec"][field]
    async with (
        go_target(files) as (_, plain),
        servers.controller_runtime(go_programs(), files) as target,
        aiohttp.ClientSession() as session,
    ):
        for caller in (plain, Caller(session, files, target)):
            assert (await caller.ask(Half.VALIDATE, encode_validating_review(Workload(), place(pod))))["allowed"]
            assert not (await caller.ask(Half.VALIDATE, encode_validating_review(Workload(), lacking)))["allowed"]


async def test_go_webhook_with_redis_charges_each_pod_and_verifies_tokens(redis: RedisServer, files: Files) -> None:
    """Without either it would be cheaper."""
    review = encode_mutating_review(Workload(), user_pod(Workload()))
    async with go_target(files, redis) as (target, caller):
        with redis.client() as client:
            client.script_load(servers.GCRA.read_text())
            client.config_resetstat()
            await caller.ask(Half.MUTATE, review)
            calls = client.info("commandstats")
            assert (calls["cmdstat_evalsha"]["calls"], calls["cmdstat_set"]["calls"]) == (1, 2), "two limits"
        async with aiohttp.ClientSession() as session:
            stranger = replace(files, signer=files.other)
            with pytest.raises(SystemExit, match="401"):
                await Caller(session, stranger, target).ask(Half.MUTATE, review)


async def _tiny_load(files: Files, target: Target, calls: list[Call], load: Load | None = None) -> Measured:
    tiny = load or Load(0.0, TINY_SECONDS, connections=2)
    return await generate(
        go_programs().loadgen, Credentials.from_files(files), target.addresses, calls, tiny, target.processes
    )


@pytest.mark.parametrize("case", [MUTATE, VALIDATE, BOTH, UNMATCHED_POD], ids=lambda case: case.name)
async def test_generator_accepts_only_the_expected_response(files: Files, case: Case) -> None:
    async with go_target(files) as (target, caller):
        [*before, last] = await caller.calls(Scenario(case))
        assert (await _tiny_load(files, target, [*before, last])).count > 0
        expect = last.expect
        for wrong in (
            Expect(echoes_uid=True, allowed=not expect.allowed, patch=expect.patch, text=""),
            Expect(echoes_uid=True, allowed=expect.allowed, patch=not expect.patch, text=""),
            Expect(echoes_uid=True, allowed=expect.allowed, patch=expect.patch, text="QuotaExceeded"),
        ):
            with pytest.raises(SystemExit, match="answered"):
                await _tiny_load(files, target, [*before, Call(last.path, last.bodies, wrong)])


async def test_generator_rejects_a_response_with_another_uid(files: Files) -> None:
    expect = Expect(echoes_uid=True, allowed=True, patch=False, text="")
    async with servers.empty_go(go_programs(), files) as target:
        with pytest.raises(SystemExit, match="without the uid"):
            await _tiny_load(files, target, [Call("/mutate", ["{}"], expect)])


async def test_generator_does_not_exceed_the_rate(files: Files) -> None:
    """Pods that were due during the warm-up of 0.5 s may be answered in the window."""
    async with go_target(files) as (target, caller):
        calls = await caller.calls(Scenario(MUTATE))
        measured = await _tiny_load(files, target, calls, Load(0.5, 2.0, rate=50))
    assert 0 < measured.count <= 50 * measured.seconds + 25 + 1
    assert measured.latency_us.p50 <= measured.latency_us.p90 <= measured.latency_us.p99 <= measured.latency_us.max


def test_sources_in_go_are_formatted() -> None:
    compiler = go(cache())
    gofmt = Path(run_go(compiler, MODULE, "env", "GOROOT").strip()) / "bin" / "gofmt"
    assert subprocess.run([gofmt, "-l", MODULE], check=True, capture_output=True, text=True).stdout == ""


def test_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """The ratio of the medians would compare different rounds, and so different loads of the machine."""
    assert Spread.from_ratios([50.0, 100.0, 300.0], [100.0, 400.0, 400.0]) == Spread(0.5, 0.25, 0.75)


def test_servers_with_different_trace_rates_get_a_warning() -> None:
    usual, none, alike = (Rates(name, 1000, traces, 0.01) for name, traces in (("a", 0.01), ("b", 0.0), ("c", 0.011)))
    assert [line.split()[1] for line in unlike([usual, none, alike])] == ["b"]


def test_both_calls_of_a_pod_are_compared_with_one_mutating_call_of_go() -> None:
    """A webhook that costs as much as Go's has 1.0 for each call, and 2.0 for both."""

    def row(name: str, case: Case, cpu_us: float) -> Row:
        measured = Measured(1, 1.0, Latency(1.0, 1.0, 1.0, 1.0), {servers.SERVER: cpu_us / 1e6})
        return Row(Target(name, "", 0), Scenario(case), [measured])

    rows = [
        row(name, case, cpu_us)
        for name, factor in (("podgate, redis", 1.5), (servers.GO, 1.0))
        for case, cpu_us in ((MUTATE, 100 * factor), (VALIDATE, 80 * factor), (BOTH, 200 * factor), (UNMATCHED_POD, 60))
    ]
    ratio = json.loads(summary(rows))["ratio"]["go"]
    assert ratio == {"mutate": 1.5, "validate": 1.5, "both": 3.0, "unmatched": 1.0}
    both = next(line for line in list_objects(rows) if line["case"] == "both")
    assert (both["ratio"][servers.GO].median, both["ratio_to_both_of_go"].median) == (3.0, 1.5)
