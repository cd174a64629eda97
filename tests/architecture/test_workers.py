"""Distribution of tests over workers, and durations by tier."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.host_processes import wait_until
from tests.cluster.processes import Processes, sum_cpu_seconds
from tests.workers import API_ALONE, GROUPS, LONGEST_FIRST, _select_groups, group_of

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
SHARED = {"plane", "api_alone"}
"""Fixtures of `tests/cluster`: clusters that its modules share."""
CHART, LEASE, SERVER = "tests/cluster/test_chart.py", "tests/cluster/test_lease.py", "tests/server/test_server.py"


@pytest.mark.parametrize("module", sorted({*GROUPS, *LONGEST_FIRST} - {*GROUPS.values()}))
def test_module_in_the_order_exists(module: str) -> None:
    assert (ROOT / module).is_file()


def test_modules_that_measure_share_a_worker_and_others_have_their_own() -> None:
    fuzz, flood, other = (f"tests/server/test_{name}.py::test_one[a::b]" for name in ("fuzz", "flood", "server"))
    assert group_of(fuzz) == group_of(flood) != group_of(other) == "tests/server/test_server.py"


def list_functions(module: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the parameters of each test and each fixture of a module."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_fixture = any("fixture" in ast.unparse(each) for each in node.decorator_list)
            if is_fixture or node.name.startswith("test_"):
                yield node.name, {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}


def find_shared(module: Path) -> set[str]:
    """Return the shared clusters that a module uses; a fixture of its own may have the name of one."""
    functions = dict(list_functions(module))
    return SHARED & set[str]().union(*functions.values()) - functions.keys()


def test_a_module_uses_one_of_the_shared_clusters_at_most_and_its_worker_knows_which() -> None:
    used = {str(path.relative_to(ROOT)): find_shared(path) for path in (ROOT / "tests/cluster").glob("test_*.py")}
    assert [module for module, clusters in used.items() if len(clusters) > 1] == []
    assert {module for module, clusters in used.items() if clusters == {"api_alone"}} == API_ALONE


@pytest.mark.parametrize(
    ("worker", "groups", "chosen"),
    [
        ("gw0", [LEASE, SERVER, CHART], [CHART]),
        ("gw0", [LEASE, SERVER], [LEASE]),
        ("gw1", [LEASE, SERVER, CHART], [SERVER]),
        ("gw1", [LEASE, CHART], [CHART]),
        ("gw2", [LEASE, SERVER, CHART], [LEASE]),
        ("gw2", [SERVER, CHART], [CHART]),
        ("gw2", [SERVER], [SERVER]),
        ("gw4", [LEASE, SERVER, CHART], [CHART]),
    ],
)
def test_a_worker_takes_the_modules_of_one_kind_of_cluster_while_there_are_any(
    worker: str, groups: list[str], chosen: list[str]
) -> None:
    node: Any = SimpleNamespace(gateway=SimpleNamespace(id=worker))
    assert _select_groups(node, groups) == chosen


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
