"""Counters reported as reset are exactly those that a store restarts under the new policy."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import examples
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.quota import Acquire, Use
from webhook.core.quota.counter_resets import find_resets

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
PLAIN = "{window: 1m, hard: {pods: 50, cpu: 40}}, {window: 24h, hard: {pods: 5000}}"
POOL = "- {name: prod, windows: [{window: 1m, hard: {pods: 300}}]}\n"
POOLS = f"pools:\n{POOL}{POOL.replace('prod', 'test')}"


def policy(windows: str = PLAIN, *, name: str = "a", quota: str = "", service: str = "", pools: str = POOLS) -> Policy:
    text = f"- name: {name}\n  match: {{namespaces: [shop]}}\n  quota: {{{quota} windows: [{windows}]}}\n"
    breaker = "  breaker: {quotaExceeded: {}}\n"
    document = f"{HEAD}{pools}services:\n{text}{breaker}{service}- {{name: other, match: {{namespaces: [x]}}}}\n"
    return load(document.encode(), Purpose.LINT).policy.policy


@pytest.mark.parametrize(
    "changed",
    [
        policy(),
        policy("{window: 60s, hard: {requests.cpu: 1, pods: 1}}, {window: 1440m, hard: {pods: 5}}"),
        policy("{window: 1m, hard: {pods: 50}}"),
        policy(service="  slaClass: gold\n  modes: {quota: Audit}\n"),
        policy(service="  modes: {quota: Disabled}\n"),
        policy(
            service="- {name: new, match: {namespaces: [new]}, quota: {windows: [{window: 1m, hard: {pods: 1}}]}}\n"
        ),
    ],
    ids=["the same", "other limits", "fewer limits", "modes", "disabled", "a new service"],
)
def test_counters_that_continue_are_not_reported(changed: Policy) -> None:
    assert list(find_resets(policy(), changed)) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            policy(PLAIN.replace("1m", "2m")),
            "services[a].quota.windows[2m]: starts empty: no window of this length counted before",
        ),
        (
            policy(PLAIN.replace("pods: 5000", "pods: 5000, memory: 1Ti")),
            "services[a].quota.windows[24h].hard.memory: starts empty: not counted in this window before",
        ),
        (
            policy(quota="per: Namespace,"),
            "services[a].quota.per: Namespace: its windows start empty: each namespace counts for itself",
        ),
        (
            policy(quota="scope: Fleet,"),
            "services[a].quota.scope: Fleet: its windows start empty: all clusters on this Redis count together",
        ),
        (
            policy(service="  pool: prod\n"),
            "services[a].pool: prod: its windows start empty, its breaker closes: counters do not move between pools",
        ),
        (policy(name="b"), "services[b]: starts empty: no rename of a carries its counters"),
    ],
)
def test_counter_that_starts_empty_is_reported_with_the_reason(changed: Policy, line: str) -> None:
    assert list(find_resets(policy(), changed)) == [line]
    assert len(line) <= 120  # what Kubernetes asks of a warning


def test_windows_of_a_pool_are_reported_once_for_all_members() -> None:
    two = "- {name: b, match: {namespaces: [y]}, pool: prod}\n- {name: c, match: {namespaces: [z]}, pool: prod}\n"
    longer = POOLS.replace("1m", "5m", 1)
    assert list(find_resets(policy(service=two), policy(service=two, pools=longer))) == [
        "pools[prod].windows[5m]: starts empty: no window of this length counted before"
    ]
    fleet = POOLS.replace("prod,", "prod, scope: Fleet,")
    assert list(find_resets(policy(service=two), policy(service=two, pools=fleet))) == [
        "pools[prod].scope: Fleet: its windows start empty: Fleet and Cluster count apart"
    ]


class ServiceText(NamedTuple):
    """The quota of one service and its pool: hard by window, and the scope of the counters."""

    windows: dict[str, tuple[str, ...]]
    pool_windows: dict[str, tuple[str, ...]]
    per: str
    scope: str
    pool: str | None

    def policy(self) -> Policy:
        pool = "" if self.pool is None else f"  pool: {self.pool}\n"
        pools = "".join(
            f"- {{name: {name}, scope: {self.scope}, windows: [{_windows_text(self.pool_windows)}]}}\n"
            for name in ("a", "prod")
        )
        quota = f"per: {self.per}, scope: {self.scope},"
        return policy(_windows_text(self.windows), quota=quota, service=pool, pools=f"pools:\n{pools}")


def _windows_text(windows: dict[str, tuple[str, ...]]) -> str:
    return ", ".join(
        f"{{window: {window}, hard: {{{', '.join(f'{name}: 1000' for name in names)}}}}}"
        for window, names in windows.items()
    )


HARD = st.sampled_from([("pods",), ("cpu",), ("pods", "cpu"), ("requests.cpu", "pods")])
WINDOWS = st.dictionaries(st.sampled_from(["1m", "2m", "1h"]), HARD, min_size=1)
SERVICE_TEXTS = st.builds(
    ServiceText,
    WINDOWS,
    WINDOWS,
    st.sampled_from(["Service", "Namespace"]),
    st.sampled_from(["Cluster", "Fleet"]),
    st.sampled_from([None, "a", "prod"]),  # a pool may have the name of a service, and then its tag
)


def is_reported(use: Use, lines: list[str], path: str) -> bool:
    at = f"{path}.windows[{use.window}]"
    starts = [line.partition(": starts empty")[0] for line in lines]
    return at in starts or f"{at}.hard.{use.resource}" in starts


@examples(150)
@given(SERVICE_TEXTS, SERVICE_TEXTS)
async def test_store_starts_from_zero_exactly_where_reported(old: ServiceText, new: ServiceText) -> None:
    before, after = old.policy(), new.policy()
    store = MemoryStore(VirtualClock())
    plan, plan_after = (CompiledPolicy(LoadedPolicy(found, "")).plans["a"] for found in (before, after))
    await store.acquire(Acquire(plan, "shop", "u1", {"pods": 1, "requests.cpu": 1000}, "user:me"))
    snapshot = await store.snapshot(plan_after, "shop")
    lines = list(find_resets(before, after))

    [uses] = snapshot.uses.values()
    all_new = any(line.startswith("services[a]") and "its windows start empty" in line for line in lines)
    for use in uses:
        assert (use.used == 0) == (all_new or is_reported(use, lines, "services[a].quota")), (use, lines)
    if old.pool is not None and old.pool == new.pool:
        all_new = any(line.startswith(f"pools[{new.pool}].scope") for line in lines)
        for use in snapshot.pool:
            assert (use.used == 0) == (all_new or is_reported(use, lines, f"pools[{new.pool}]")), (use, lines)
