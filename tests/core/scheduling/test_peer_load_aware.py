"""Koordinator's load-aware plugin: its published cases (pkg/scheduler/plugins/loadaware), in our words.

Node: 96 cores, 512 GiB. Its thresholds are 65 and 95 unless a case has others, its factors 0.85 and 0.7.
"""

from collections import Counter

import msgspec
import pytest

from tests.core.scheduling.peer_cases import GIB, Case, Held, PeerExtender, build_pod, check_case
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.assumed_load import estimate_load

OTHER, BETTER = Held.OTHER, Held.BETTER


def hot(cpu: float, memory: float | None = None, more: str = "") -> str:
    return f"{{hot: {{cpu: {cpu}{'' if memory is None else f', memory: {memory}'}}}{more}}}"


USUAL, REFUSE = hot(0.65, 0.95), hot(0.65, 0.95, ", whenUnknown: Refuse")
BY_QUERY = "queries.cpu of the source is quantile_over_time(0.95, ...): the node's load is what it returns"
BY_SERVICE = "a threshold is one of the service, and no annotation of a node changes it"
ALL_PODS = "the load of all Pods counts, not that of one priority class"
NOT_READ = "mid and batch resources are Koordinator's own: a Pod that asks for them counts as one that asks for nothing"


def ask(cpu: str, memory: str) -> dict[str, str]:
    return {"cpu": cpu, "memory": memory}


def ask_mid(cpu: str, memory: str, kind: str = "mid") -> dict[str, str]:
    return {f"kubernetes.io/{kind}-cpu": cpu, f"kubernetes.io/{kind}-memory": memory}


FILTERED = (
    Case("below both thresholds", "", "", used=(60, 256), rules=USUAL),
    Case("never measured", "", "", used=None, rules=USUAL),
    Case("cpu above", "cpu", "cpu", used=(70, 256), rules=USUAL),
    Case("p95 of cpu above", "cpu", "cpu", why=BY_QUERY, used=(70, 256), rules=hot(0.6)),
    Case("memory above", "memory", "memory", used=(30, 500), rules=USUAL),
    Case(
        "memory above a node's own threshold", "memory", "memory", why=BY_SERVICE, used=(30, 316), rules=hot(0.65, 0.6)
    ),
    Case(
        "p95 of cpu above a node's own", "cpu", "cpu", why=f"{BY_SERVICE}; {BY_QUERY}", used=(70, 256), rules=hot(0.6)
    ),
    Case("no threshold of memory", "", "", used=(30, 500), rules=hot(0.65)),
    Case("thresholds of the whole node", "", "", used=(63, 500), rules=hot(1, 1)),
    Case("cpu of production Pods above", "cpu", "cpu", why=ALL_PODS, used=(63, 500), rules=hot(0.5, 1)),
    Case("memory of production Pods above", "memory", "memory", why=ALL_PODS, used=(63, 500), rules=hot(1, 0.5)),
    Case(
        "memory of production Pods above a node's own",
        "memory",
        "memory",
        why=f"{ALL_PODS}; {BY_SERVICE}",
        used=(63, 500),
        rules=hot(1, 0.5),
    ),
    Case(
        "Pod of a DaemonSet",
        "",
        "",
        why="exemptions.daemonSets: such Pods have no label of a service",
        used=(70, 256),
        rules=USUAL,
        has_label=False,
    ),
    Case("cpu above with the Pod", "cpu", "cpu", used=(53, 500), asks=ask("20", "100Gi"), rules=hot(0.6, 1)),
    Case(
        "mid cpu above with the Pod",
        "cpu",
        "",
        OTHER,
        NOT_READ,
        used=(53, 300),
        asks=ask_mid("12k", "100Gi"),
        rules=hot(0.65, 1),
    ),
    Case("memory above with the Pod", "memory", "memory", used=(53, 300), asks=ask("1", "165Gi"), rules=hot(0.6, 0.8)),
    Case(
        "mid memory above with the Pod",
        "memory",
        "",
        OTHER,
        NOT_READ,
        used=(53, 300),
        asks=ask_mid("1k", "200Gi"),
        rules=hot(0.65, 0.85),
    ),
    Case(
        "memory above with it and one just assigned",
        "memory",
        "memory",
        used=(53, 300),
        asks=ask("1", "200Gi"),
        assigned=[ask("1", "200Gi")],
        rules=hot(0.6, 0.7),
    ),
    Case(
        "mid cpu above with it and one just assigned",
        "cpu",
        "",
        OTHER,
        NOT_READ,
        used=(33, 110),
        asks=ask_mid("20k", "200Gi"),
        assigned=[ask_mid("20k", "200Gi")],
        rules=hot(0.65, 0.85),
    ),
    Case("expiry: fresh", "", "", rules=REFUSE),
    Case("expiry: never measured", "fresh load", "fresh load", used=None, rules=REFUSE),
    Case("expiry: 180 s old", "fresh load", "fresh load", rules=REFUSE, age_seconds=180),
    Case("expiry admitted: fresh", "", "", rules=USUAL),
    Case("expiry admitted: never measured", "", "", used=None, rules=USUAL),
    Case("expiry admitted: 180 s old", "", "", rules=USUAL, age_seconds=180),
    Case("expiry not admitted: never measured", "fresh load", "fresh load", used=None, rules=REFUSE),
    Case("expiry not admitted: 180 s old", "fresh load", "fresh load", rules=REFUSE, age_seconds=180),
)
IN_CORES = (
    Case("the same in cores", "cpu", "cpu", used=(53, 300), asks=ask("12", "100Gi"), rules=hot(0.65, 1)),
    Case("the same in bytes", "memory", "memory", used=(53, 300), asks=ask("1", "200Gi"), rules=hot(0.65, 0.85)),
    Case(
        "the same in cores, without memory",
        "cpu",
        "cpu",
        used=(33, 110),
        asks=ask("20", "1Gi"),
        assigned=[ask("20", "1Gi")],
        rules=hot(0.65, 0.85),
    ),
)
"""Beside its table: the cases of its own resources, asked for as cores and bytes."""
EQUAL = "{score: {cpu: 0.5, memory: 0.5, latency: 0, topology: 0}}"
LARGE = ask("16", "32Gi")
NO_DATA = "a node without data of its query scores 0: it does not look idle"
SCORED = (
    Case("180 s old", 0, 0, rules=EQUAL, age_seconds=180),
    Case("idle node", 9, 9, asks=LARGE, rules=EQUAL),
    Case("never measured", 0, 0, asks=LARGE, used=None, rules=EQUAL),
    Case("node with load", 7, 7, asks=LARGE, used=(32, 10), rules=EQUAL),
    Case("p95 of the load", 7, 7, why=BY_QUERY, asks=LARGE, used=(32, 10), rules=EQUAL),
    Case("no p95", 9, 0, BETTER, NO_DATA, asks=LARGE, used=None, rules=EQUAL),
    Case("no p95, and a Pod assigned", 8, 0, BETTER, NO_DATA, asks=LARGE, used=None, assigned=[LARGE], rules=EQUAL),
    Case("a Pod just assigned", 6, 6, asks=LARGE, used=(32, 10), assigned=[LARGE], rules=EQUAL),
    Case(
        "a Pod assigned after the measurement",
        6,
        6,
        asks=LARGE,
        used=(32, 10),
        assigned=[LARGE],
        rules=EQUAL,
        age_seconds=10,
    ),
    Case("a Pod assigned just before the measurement", 6, 6, asks=LARGE, used=(32, 10), assigned=[LARGE], rules=EQUAL),
    Case("batch Pod", 9, 10, OTHER, NOT_READ, asks=ask_mid("16k", "32Gi", "batch"), rules=EQUAL),
    Case("production Pod of 16,000 cores", 4, 4, why=ALL_PODS, asks=ask("16000", "32Gi"), used=(30, 100), rules=EQUAL),
    Case("request below the limit", 9, 9, asks=ask("8", "16Gi"), limits=LARGE, rules=EQUAL),
    Case(
        "dominant resource",
        8,
        9,
        OTHER,
        "no term for the scarcer resource: weights of both are fixed",
        asks=LARGE,
        rules=EQUAL,
    ),
    Case("Pod that asks for nothing", 10, 10, rules=EQUAL),
)
"""Scores from 0 to 10: Koordinator's are divided by 10, since an extender has no others."""
COUNTS = {Held.SAME: 35, Held.BETTER: 2, Held.OTHER: 5}


@pytest.mark.parametrize("case", [*FILTERED, *IN_CORES], ids=lambda case: case.name)
def test_filter(case: Case) -> None:
    check_case(case)
    assert PeerExtender(case, 96, 512).filter() == case.ours


@pytest.mark.parametrize("case", SCORED, ids=lambda case: case.name)
def test_score(case: Case) -> None:
    check_case(case)
    assert PeerExtender(case, 96, 512).score() == case.ours


def test_counts_are_those_that_are_stated() -> None:
    assert Counter(case.held for case in (*FILTERED, *SCORED)) == COUNTS


HALF = 5.6 * GIB
ANNOTATED = "a Pod cannot choose its own factor: whoever creates it would pass any threshold"


@pytest.mark.parametrize(
    ("requests", "limits", "factors", "theirs", "ours", "why"),
    [
        ({}, {}, (0.85, 0.7), (250, 200 << 20), (250, 200 << 20), ""),
        (ask("4", "8Gi"), ask("4", "8Gi"), (0.85, 0.7), (3400, HALF), (3400, HALF), ""),
        (ask("4", "8Gi"), ask("8", "8Gi"), (0.85, 0.7), (6800, HALF), (6800, HALF), ""),
        (ask("4", "8Gi"), ask("4", "8Gi"), (1.1, 0.7), (4000, HALF), (4000, HALF), ""),
        (ask("4", "8Gi"), ask("4", "8Gi"), (0.85, 1.1), (3400, 8 * GIB), (3400, 8 * GIB), ""),
        (ask_mid("4k", "8Gi", "batch"), {}, (0.85, 0.7), (3400, HALF), (250, 200 << 20), NOT_READ),
        (ask("4", "8Gi"), {}, (0.8, 0.8), (3200, 6.4 * GIB), (3200, 6.4 * GIB), ""),
        (ask("4", "8Gi"), {}, (0.8, 0.8), (4000, 6.4 * GIB), (3200, 6.4 * GIB), ANNOTATED),
        (ask("4", "8Gi"), {}, (2.0, 2.0), (8000, 16 * GIB), (8000, 16 * GIB), ""),  # beyond its table: no limit
    ],
)
def test_estimate(
    requests: dict[str, str],
    limits: dict[str, str],
    factors: tuple[float, float],
    theirs: tuple[float, float],
    ours: tuple[float, float],
    why: str,
) -> None:
    assert (theirs == ours) == (not why)
    pod = msgspec.convert(build_pod("p", requests, limits), Pod)
    assert estimate_load(pod, Estimate(*map(Number, factors))) == pytest.approx(ours)


def test_limit_of_one_container_does_not_bound_another() -> None:
    """Koordinator expects at most 1 core here, though the first container alone asks for 4."""
    document = build_pod("p", {"cpu": "4"}, {})
    document["spec"]["containers"].append({"name": "side", "resources": {"limits": {"cpu": "1"}}})
    pod = msgspec.convert(document, Pod)
    assert estimate_load(pod, Estimate(cpu=Number(1.1))).cpu_millis == pytest.approx(5500)
    document["spec"]["resources"] = {"limits": {"cpu": "5"}}
    assert estimate_load(msgspec.convert(document, Pod), Estimate(cpu=Number(1.1))).cpu_millis == 5000
