"""The commands of docker-compose.yml, run as local processes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.local_processes import Composition


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def composition(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composition]:
    before = files(image_folder)
    with Composition(image_folder, tmp_path_factory.mktemp("composition")) as running:
        running.up("traffic")
        yield running
    assert files(image_folder) == before, "no process writes to the read-only root file system"


def results(composition: Composition) -> list[str]:
    """Return the result of each Pod of the traffic: `Admitted`, or the code of its denial."""
    lines = [line for line in composition.log("traffic").splitlines() if line.startswith("{") and line.endswith("}")]
    responses = [json.loads(line)["response"] for line in lines]
    assert all("warnings" not in response for response in responses), "the Pod has all that the mutating webhook sets"
    return ["Admitted" if row["allowed"] else row["status"]["message"].partition(":")[0] for row in responses]


def is_breaker_open(composition: Composition, server: str) -> bool:
    series = 'podgate_breaker_state{service="payment-api",state="OPEN"} 1.0'
    return series in composition.plain(server, "/metrics").splitlines()


def test_traffic_is_admitted_until_the_quota_is_used_up_and_denials_open_the_breaker(composition: Composition) -> None:
    composition.wait(lambda: is_breaker_open(composition, "podgate"), "the breaker to open", "traffic", "podgate")
    composition.wait(lambda: "BreakerOpen" in results(composition), "a denial by the breaker", "traffic", "podgate")
    all_results = results(composition)
    before = all_results[: all_results.index("QuotaExceeded")]
    assert before == ["Admitted"] * len(before)
    assert len(before) >= 3
    assert all_results.index("QuotaExceeded") < all_results.index("BreakerOpen")


def test_replica_without_requests_shows_the_same_breaker(composition: Composition) -> None:
    composition.up("replica")
    composition.wait(lambda: is_breaker_open(composition, "replica"), "the breaker to open", "traffic", "replica")
    assert composition.keys_in_redis() > 0


def test_prometheus_scrapes_all_servers_and_evaluates_the_shipped_rules(composition: Composition) -> None:
    composition.up("replica")
    composition.up("prometheus")
    servers = len(composition.plain_addresses())
    assert servers == 2
    composition.wait(lambda: composition.query('sum(up{job="podgate"})') == servers, "scrapes", "prometheus")
    opened = 'podgate_breaker_state{service="payment-api",state="OPEN"}'
    composition.wait(lambda: composition.query(f"count({opened})") == servers, "the breaker's series", "prometheus")
    composition.wait(lambda: set(composition.rules().values()) == {"ok"}, "the rules", "prometheus")


def test_second_setup_keeps_ca_and_signing_key_and_the_traffic_continues(composition: Composition) -> None:
    kept_files, renewed_files = (
        ("ca.crt", "ca.key", "token.key", "jwks.json"),
        ("server.crt", "kube-apiserver.crt", "token"),
    )
    before = {name: (composition.volume("pki") / name).read_bytes() for name in (*kept_files, *renewed_files)}
    composition.set_up()
    after = {name: (composition.volume("pki") / name).read_bytes() for name in before}
    assert {name for name in before if before[name] != after[name]} == set(renewed_files)
    count = len(results(composition))
    composition.wait(lambda: len(results(composition)) > count + 1, "more answers", "traffic", "podgate")


def test_keys_and_tokens_are_readable_by_their_owner_only(composition: Composition) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in composition.volume("pki").iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {
        *("ca.key", "server.key", "kube-apiserver.key", "token.key", "token"),
    }


def test_stopped_server_exits_with_code_zero(composition: Composition) -> None:
    composition.up("replica")
    assert composition.stop("replica") == 0
    assert '"stopped"' in composition.log("replica")


def test_counters_survive_a_restart_of_redis(composition: Composition) -> None:
    composition.wait(lambda: composition.keys_in_redis() > 0, "a Pod to be counted", "traffic", "podgate")
    composition.stop("traffic")
    composition.restart_redis()
    assert composition.keys_in_redis() > 0
