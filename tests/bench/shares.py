"""Cost of shares in a mutating call: of a service whose Pods have slots, beside the same service without.

Both are called in turns, over TLS at one server, and in one process, where opcodes do not depend on how busy the
machine is. Each of a store in this process and of Redis gives the slots.
"""

import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import uvloop

from tests.bench.comparison import Bench, Row
from tests.bench.cpu import GENERATOR_CORE, SERVER_CORE, cpu_seconds, pin_to
from tests.bench.full import SECONDS, WARM_UP_SECONDS, comparison
from tests.bench.lineup import with_shares
from tests.bench.policies import ADMITTED, DIVIDED, SHARES
from tests.bench.programs import go_programs
from tests.bench.real_redis import real_redis
from tests.bench.report import counterpart
from tests.bench.reviews import AT_ONCE, Reviews, open_reviews
from tests.bench.scenario import DIVIDE, MUTATE, WORKLOADS
from tests.bench.servers import OWN, OWN_MEMORY, REDIS
from tests.bench.spread import Spread
from tests.bench.traffic import Workload, encode_mutating_review, renew, user_pod
from tests.harness.revisions import check_out
from tests.harness.server_process import Files
from tests.redis_servers import RedisServer
from webhook.core.admission.decision import Half

REVIEWS, COUNTED = 800, 160
AIM = "aim: 1.3 times the call without shares"


def measure_reviews(rounds: int, reviews: int = REVIEWS) -> list[dict[str, Any]]:
    """Return the cost of a review in this process, by store: opcodes, and microseconds of CPU here and at Redis."""
    with real_redis() as redis:
        return [_measure_store(OWN, redis, rounds, reviews), _measure_store(OWN_MEMORY, None, rounds, reviews)]


def _measure_store(name: str, redis: RedisServer | None, rounds: int, count: int) -> dict[str, Any]:
    services = (ADMITTED, DIVIDED)
    cpu_us: dict[str, list[float]] = {service: [] for service in services}
    redis_us: dict[str, list[float]] = {service: [] for service in services}
    with open_reviews(SHARES, ("payments", DIVIDED), redis) as reviews:
        for service in services:  # caches fill, and owners become known
            _review(reviews, make_bodies(service, count))
        opcodes = {service: reviews.count_opcodes(Half.MUTATE, _encode(service), COUNTED) for service in services}
        for number in range(rounds):
            for service in services if number % 2 else reversed(services):
                bodies = make_bodies(service, count)
                before = cpu_seconds(redis.pid) if redis is not None else 0.0
                started_ns = time.process_time_ns()
                _review(reviews, bodies)
                cpu_us[service].append((time.process_time_ns() - started_ns) / 1000 / count)
                if redis is not None:
                    redis_us[service].append((cpu_seconds(redis.pid) - before) * 1e6 / count)
    return {
        "store": name,
        "opcodes": opcodes[DIVIDED],
        "opcodes_without": opcodes[ADMITTED],
        "cpu_us": Spread.from_values(cpu_us[DIVIDED]),
        "cpu_us_without": Spread.from_values(cpu_us[ADMITTED]),
        "times_without": Spread.from_ratios(cpu_us[DIVIDED], cpu_us[ADMITTED]),
        **({"redis_us": Spread.from_values(redis_us[DIVIDED])} if redis is not None else {}),
    }


def _review(reviews: Reviews, bodies: Sequence[bytes]) -> None:
    answer = reviews.review(Half.MUTATE, bodies)
    if not answer.decision.patch:
        raise SystemExit(f"error: not rewritten: {answer.body!r}")


@cache
def _encode(service: str) -> Sequence[str]:
    workloads = (Workload(service, number) for number in range(WORKLOADS))
    return [encode_mutating_review(workload, user_pod(workload)) for workload in workloads]


def make_bodies(service: str, count: int) -> list[bytes]:
    texts = _encode(service)
    return [renew(texts[number % len(texts)]) for number in range(count)]


def list_calls(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the mutating call with shares over TLS beside the one without, by server and connections."""
    return [
        {
            "server": row.target.name,
            "connections": row.scenario.connections,
            "times_without": row.ratio(without),
            "cpu_us": Spread.from_values(row.cpu_us),
            "redis_us": Spread.from_values([measured.cpu_us(REDIS) for measured in row.rounds]),
            "p50_times_without": row.p50_ratio(without),
        }
        for row in rows
        if row.scenario.case is DIVIDE and (without := counterpart(rows, row, row.target.name, MUTATE)) is not None
    ]


def render(calls: Sequence[dict[str, Any]], reviews: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of both."""
    lines = [f"over TLS: the call with shares, times the one without; {AIM}"]
    for call in calls:
        name = f"{call['server']}, {call['connections']} connections"
        lines.append(
            f"  {name:40} {call['times_without']:.2f}, p50 {call['p50_times_without']:.2f};"
            f" {call['cpu_us']:.0f} us, Redis {call['redis_us'].median:.0f} us"
        )
    lines.append(f"a review in one process, {AT_ONCE} at once")
    for review in reviews:
        at_redis = f", Redis {review['redis_us'].median:.1f} us" if "redis_us" in review else ""
        lines.append(
            f"  {review['store']:40} {review['times_without']:.2f};"
            f" {review['cpu_us'].median:.1f} us by {review['cpu_us_without'].median:.1f} us{at_redis};"
            f" opcodes {review['opcodes']:,} by {review['opcodes_without']:,}"
        )
    return lines


def measure(rounds: int, revision: str | None) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of the output, and the figures; `revision` adds the servers of another commit."""
    before = check_out(revision) if revision else None
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder, pin_to(GENERATOR_CORE):
        files = Files.create(Path(folder), SHARES)
        bench = Bench(go_programs().loadgen, files, rounds, SECONDS, WARM_UP_SECONDS, SECONDS)
        table, _, rows = uvloop.run(comparison(with_shares, bench, before))
    with pin_to(SERVER_CORE):
        reviews = measure_reviews(rounds * 3)
    calls = list_calls(rows)
    return [*table, *render(calls, reviews)], {"calls": calls, "reviews": reviews}
