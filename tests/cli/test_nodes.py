"""`podgate nodes` shows the load of nodes as a table or as documents."""

import json
from collections.abc import Callable, Iterator

import msgspec
import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.harness.canned_http import serve_answers
from webhook.core.reporting.node_document import NodeDocument, ShownNode
from webhook.core.scheduling.measured_load import NodeLoad

GIB = 1 << 30
SERVICES = dict.fromkeys("abcde", "hot_cpu")
MEASURED = NodeLoad("prometheus", 1.0, 13_500.0, 20.0 * GIB, 0.012, 0.25, io_pressure=0.5)
HOT = ShownNode(
    "hot",
    0.875,
    0.5,
    assumed_cpu_millis=500.0,
    assumed_memory_bytes=12.0 * GIB,
    load=MEASURED,
    numa_cpu_millis=(4000, 2500),
    allocatable_cpu_millis=16_000.0,
    allocatable_memory_bytes=64.0 * GIB,
    assumed_pods=3,
    age_seconds=75.4,
    exceeds={**SERVICES, "batch": "hot_memory"},
)
NEW = ShownNode(
    "new",
    None,
    None,
    0.0,
    0.0,
    load=None,
    numa_cpu_millis=None,
    allocatable_cpu_millis=16_000.0,
    allocatable_memory_bytes=64.0 * GIB,
)
DOCUMENT = NodeDocument((HOT, NEW), 7)
UNREAD = "noderesourcetopologies new: zones[0].resources[1]: available: '-1Gi': a quantity must not be negative"
PATH = "/api/v1/nodes"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    found = {
        f"{PATH}?limit=100": DOCUMENT,
        f"{PATH}?limit=2": DOCUMENT,
        f"{PATH}?name=new": NodeDocument((NEW,), 7),
        f"{PATH}?limit=3": NodeDocument((NEW,), 1, (UNREAD,)),
        f"{PATH}?limit=4": NodeDocument((), 0, (UNREAD,)),
        f"{PATH}?name=nobody": NodeDocument((), 7),
    }
    with serve_answers({path: (200, msgspec.json.encode(document)) for path, document in found.items()}) as url:
        yield url


def test_table_has_the_load_its_source_and_age_and_what_it_exceeds(server: str) -> None:
    heading, hot, new, more = podgate("nodes", "--extender", server, "-o", "table").out.splitlines()
    assert heading.split() == [
        "NODE",
        "CPU",
        "MEMORY",
        *("CPU", "USED", "MEMORY", "USED"),
        *("SOURCE", "AGE", "ASSUMED", "EXCEEDS"),
    ]
    assert hot.startswith("hot   0.88  0.50    13.5/16   20/64Gi      prometheus  1m15s  3 Pods   ")
    assert hot.endswith("  hot_cpu: a, b, c and 2 more; hot_memory: batch")
    assert new.split() == ["new", "-", "-", "?/16", "?/64Gi", "unknown", "-", "-", "-"]
    assert more == "the hottest 2 of 7"


@pytest.mark.parametrize("limit", [3, 4])
def test_objects_that_cannot_be_read_are_named(server: str, limit: int) -> None:
    shown = podgate("nodes", "--extender", server, "--limit", limit, "-o", "table").out.splitlines()
    assert shown[-1] == f"cannot be read: {UNREAD}"


def test_wide_table_has_assumed_load_pressure_latency_and_zones(server: str) -> None:
    hot = podgate("nodes", "--extender", server, "-o", "wide").out.splitlines()[1]
    assert "  0.5          12Gi            cpu 0.25 io 0.5  0.012s   4 2.5     " in hot


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_document_is_the_extenders(server: str, output: str, read: Callable[[str], object]) -> None:
    found = podgate("nodes", "--limit=2", "--extender", server, "-o", output).out
    assert read(found) == json.loads(msgspec.json.encode(DOCUMENT))


def test_one_node(server: str) -> None:
    done = podgate("nodes", "new", "--extender", server, "-o", "table")
    assert [line.split()[0] for line in done.out.splitlines()] == ["NODE", "new"]
    done = podgate("nodes", "nobody", "--extender", server)
    assert (done.code, done.error) == (4, "no node 'nobody' among the 7 known: see `podgate nodes`")


def test_other_servers_and_none_are_errors(server: str) -> None:
    done = podgate("nodes", "--extender", "http://127.0.0.1:1")
    assert (done.code, done.err.startswith("error: no extender answers: start one with")) == (2, True)
    with serve_answers({f"{PATH}?limit=100": (200, b'{"items": []}')}) as url:
        done = podgate("nodes", "--extender", url)
    assert (done.code, "answers, but not as Podgate's extender: give --extender" in done.error) == (2, True)
    for bad in ("nonsense", "ftp://127.0.0.1"):
        done = podgate("nodes", "--extender", bad)
        assert (done.code, done.error.startswith(f"--extender {bad!r}: not a URL: write http://HOST:PORT")) == (2, True)
    assert podgate("nodes", "--limit=0", "--extender", server).code == 2
