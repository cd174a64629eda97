"""Opcodes of a review by case and size of the Pod, on each store: the part of a call that is written in Python."""

from typing import Any, NamedTuple

from tests.bench.policies import EXHAUSTED, OPEN, POLICY
from tests.bench.real_redis import real_redis
from tests.bench.reviews import AT_ONCE, Reviews, open_reviews
from tests.bench.scenario import BREAKER_OPEN, MUTATE, OVER_QUOTA, UNMATCHED_POD, VALIDATE, Case
from tests.bench.servers import OWN, OWN_MEMORY
from tests.bench.traffic import (
    POD_BYTES,
    Workload,
    encode_mutating_review,
    encode_validating_review,
    typical_pod,
    user_pod,
)
from tests.redis_servers import RedisServer
from webhook.core.admission.decision import Half

WARM_UP, COUNTED = 160, 160
_NAMESPACES = ("payments", EXHAUSTED, OPEN, UNMATCHED_POD.service)


class Counted(NamedTuple):
    """A case with a size of its Pods."""

    case: Case
    pod_bytes: int = POD_BYTES

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.pod_bytes // 1000} KB"


CASES = (
    *map(Counted, (MUTATE, VALIDATE, UNMATCHED_POD, OVER_QUOTA, BREAKER_OPEN)),
    *(Counted(case, kb * 1000) for kb in (2, 65) for case in (MUTATE, VALIDATE)),
)


def measure() -> tuple[list[str], list[dict[str, Any]]]:
    """Return the lines of the output, and the figures."""
    with real_redis() as redis:
        by_store = {OWN: count_all(redis), OWN_MEMORY: count_all(None)}
    figures = [
        {"name": counted.name} | {store: found[counted] for store, found in by_store.items()} for counted in CASES
    ]
    lines = [f"opcodes of a review in one process, {AT_ONCE} at once"]
    lines += [f"  {found['name']:30} {found[OWN]:>7,} on Redis {found[OWN_MEMORY]:>7,} in memory" for found in figures]
    return lines, figures


def count_all(redis: RedisServer | None) -> dict[Counted, int]:
    """Return the opcodes of a review by case, on this Redis or in memory."""
    with open_reviews(POLICY, _NAMESPACES, redis) as reviews:
        return {counted: _count(reviews, counted) for counted in CASES}


def _count(reviews: Reviews, counted: Counted) -> int:
    case = counted.case
    (half,) = case.halves
    workloads = [
        Workload(case.service, number, counted.pod_bytes) for number in range(1 if case.has_one_workload else 20)
    ]
    texts = [_encode(reviews.policy_hash, half, workload) for workload in workloads]
    reviews.count_opcodes(half, texts, WARM_UP)  # caches fill, a quota is used up, a breaker opens
    return reviews.count_opcodes(half, texts, COUNTED)


def _encode(policy_hash: str, half: Half, workload: Workload) -> str:
    if half is Half.MUTATE:
        return encode_mutating_review(workload, user_pod(workload))
    return encode_validating_review(workload, typical_pod(policy_hash, workload))
