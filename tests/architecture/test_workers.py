"""Distribution of tests over workers, and durations by tier."""

from pathlib import Path

import pytest

from tests.cluster.host_processes import wait_until
from tests.cluster.processes import Processes, sum_cpu_seconds
from tests.workers import GROUPS, LONGEST_FIRST, group_of

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", sorted({*GROUPS, *LONGEST_FIRST} - {*GROUPS.values()}))
def test_module_in_the_order_exists(module: str) -> None:
    assert (ROOT / module).is_file()


def test_modules_that_measure_share_a_worker_and_others_have_their_own() -> None:
    fuzz, flood, other = (f"tests/server/test_{name}.py::test_one[a::b]" for name in ("fuzz", "flood", "server"))
    assert group_of(fuzz) == group_of(flood) != group_of(other) == "tests/server/test_server.py"


def test_cpu_time_of_running_background_processes_is_counted(tmp_path: Path) -> None:
    before = sum_cpu_seconds()
    processes = Processes(tmp_path)
    processes.start("busy", ["sh", "-c", "while :; do :; done"])
    wait_until(lambda: sum_cpu_seconds() > before, "the process has used CPU time")
    processes.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [("def test_one(): pass", 0), ("import pytest\n@pytest.mark.skip\ndef test_one(): pass", 1), ("", 1)],
    ids=["whole", "skipped", "empty"],
)
def test_run_of_all_tiers_fails_if_a_tier_is_incomplete(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, body: str, code: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "from tests.tiers import Tiers\n"
        "def pytest_addoption(parser): parser.addoption('--all-tiers', action='store_true')\n"
        "def pytest_configure(config): config.pluginmanager.register(Tiers(config))\n"
    )
    for folder in ("core", "cluster", "server"):
        (pytester.path / "suite" / folder).mkdir(parents=True)
        test = body if folder == "cluster" else "def test_one(): pass"
        (pytester.path / "suite" / folder / f"test_{folder}.py").write_text(test)
    done = pytester.runpytest_subprocess("--all-tiers", "--junitxml=out.xml", "suite")
    assert done.ret == code
    assert ("error: cluster" in done.stdout.str()) == bool(code)
    assert "suite/server/test_server.py::test_one" in (pytester.path / "out.txt").read_text()
