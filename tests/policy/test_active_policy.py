"""The active policy is compiled where it is swapped, in parts; a review compiles nothing, and all go by the same."""

import asyncio
import functools
import gc
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import body, pod, policy_of
from tests.harness.overrides import END_US, Still, Told, entry
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.container_resources import RangePlan
from webhook.core.document import LoadResult, Purpose, load
from webhook.core.overrides import overridden
from webhook.core.overrides_document import load as load_overrides
from webhook.core.placement import PlacementPlan
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview
from webhook.core.quota import CounterPlan
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy.active_overrides import ActiveOverrides
from webhook.policy.active_policy import AT_A_TIME, ActivePolicy
from webhook.policy.current_policy import CurrentPolicy
from webhook.support.garbage_collection import put_off

PLANS: Sequence[type[Any]] = (CounterPlan, PlacementPlan, RangePlan)
NUMBER = 10 * AT_A_TIME


def policy(disk: str = "ssd", number: int = NUMBER, head: str = "") -> bytes:
    services = "".join(
        f"""\
- name: s{n}
  match: {{namespaces: [n{n}]}}
  modes: {{breaker: {"Audit" if n % 2 else "Enforce"}}}
  placement: {{nodeSelector: {{disk: {disk}}}}}
  resources: {{container: {{default: {{cpu: 1}}}}}}
  quota: {{windows: [{{window: 1m, hard: {{pods: 5}}}}]}}
  breaker: {{quotaExceeded: {{}}}}
"""
        for n in range(number)
    )
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{head}\nservices:\n{services}".encode()


class Here:
    """A check without a process of its own."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadResult:
        return load(raw, purpose)

    async def review(self, asked: DocumentReview) -> PolicyReview:
        raise NotImplementedError


class Server:
    """The keepers and the interceptor as a server has them."""

    def __init__(self) -> None:
        self.wall = Still()
        self.overrides = ActiveOverrides(Told(), self.wall, "here")
        self.active = ActivePolicy(self.overrides)
        self.overrides.prepare = self.active.prepare_overrides
        clock = VirtualClock()
        self.keeper = CurrentPolicy(Observers(), clock, Here(), prepare=self.active.prepare)
        namespaces = FixedNamespaces()
        self.interceptor = Interceptor(self.keeper, MemoryStore(clock), namespaces, Observers(), self.active)

    @property
    def compiled(self) -> CompiledPolicy:
        loaded = self.keeper.current()
        assert loaded is not None
        return self.interceptor.compiled(loaded)

    async def selector(self, service: str = "s1") -> object:
        """Return the node selector that a review writes."""
        asked = body(namespace=f"n{service[1:]}", object=pod())
        decision = (await self.interceptor.review(Half.MUTATE, asked)).decision
        return next(one.value for one in decision.patch if one.path == "/spec/nodeSelector")

    def hard(self, service: str = "s1") -> int:
        return self.compiled.plans[service].windows[0].limits[0].hard


class Counting:
    """Counts what is compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        for kind in PLANS:
            monkeypatch.setattr(kind, "of", self._counted(kind.of))

    def _counted(self, make: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.made += 1
            return make(*arguments, **named)

        return counted


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


async def test_a_policy_is_compiled_a_few_services_in_each_turn_of_the_loop(counting: Counting) -> None:
    loaded = load(policy(), Purpose.SERVE).policy
    server, turns, counting.made = Server(), [0], 0
    preparing = asyncio.create_task(server.active.prepare(loaded))
    while not preparing.done():
        await asyncio.sleep(0)
        turns.append(counting.made)
    in_one_turn = [after - before for before, after in itertools.pairwise(turns)]
    assert counting.made == NUMBER * len(PLANS)
    assert max(in_one_turn) <= AT_A_TIME * len(PLANS)


async def test_reviews_between_the_parts_go_by_the_former_policy_and_afterwards_by_the_new(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy("hdd"), "p.yaml")
    former, made = server.compiled, counting.made
    offer = asyncio.create_task(server.keeper.on_document(policy("ssd"), "p.yaml"))
    between = 0
    while not offer.done():
        await asyncio.sleep(0)
        if not offer.done() and counting.made > made:
            between += 1
            assert server.compiled is former
            assert await server.selector() == {"disk": "hdd"}
    assert between >= NUMBER // AT_A_TIME - 1
    assert await server.selector() == {"disk": "ssd"}


async def test_no_review_compiles_anything_whatever_comes_into_force_or_ends(counting: Counting) -> None:
    server = Server()

    async def reviewed() -> int:
        """Return how much is compiled by reviews of all services."""
        before = counting.made
        for n in range(NUMBER):
            await server.selector(f"s{n}")
        return counting.made - before

    await server.keeper.on_document(policy("hdd"), "p.yaml")
    assert await reviewed() == 0
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert (server.hard("s1"), server.hard("s3")) == (15, 5)
    assert await reviewed() == 0
    await server.keeper.on_document(policy("ssd"), "p.yaml")
    assert (server.hard("s1"), server.hard("s3")) == (15, 5)
    assert await reviewed() == 0
    server.wall.us = END_US
    assert server.hard("s1") == 5
    assert await reviewed() == 0


async def test_overrides_compile_the_services_that_they_concern(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy(), "p.yaml")
    before, counting.made = server.compiled, 0
    await server.overrides.on_document(entry("s1").encode(), "o.yaml")
    assert counting.made == len(PLANS)
    assert server.compiled.parts["s2"] is before.parts["s2"]
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert counting.made == 2 * len(PLANS)


@functools.cache
def guarded() -> LoadedPolicy:
    return load(policy(number=20, head="breakerGuard: {maxOpenPercent: 100}"), Purpose.LINT).policy


DEEDS = ("quotaFactor: 3", "modes: {breaker: Enforce}", "modes: {breaker: Audit}", "breaker: ForcedOpen")
ENTRIES = st.dictionaries(st.sampled_from([f"s{n}" for n in range(20)]), st.sampled_from(DEEDS))


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.sampled_from([frozenset(), frozenset({"prepared"})]))
def test_however_overrides_follow_each_other_the_policy_is_as_if_compiled_at_once(
    series: list[dict[str, str]], preparing: frozenset[str]
) -> None:
    async def follow() -> None:
        keeper = ActiveOverrides(Told(), Still())
        active = ActivePolicy(keeper)
        if preparing:
            keeper.prepare = active.prepare_overrides
            await active.prepare(guarded())
        for entries in series:
            document = "".join(
                f"- {{service: {name}, until: 2026-12-01T04:00:00Z, reason: r, {deed}}}\n"
                for name, deed in entries.items()
            ).encode()
            await keeper.on_document(document, "o.yaml")
            assert keeper.last_errors() == ()
            found = active.compiled(guarded())
            expected = CompiledPolicy(overridden(guarded(), load_overrides(document).live(0)))
            assert (found.plans, found.counted, found.policy) == (expected.plans, expected.counted, expected.policy)
            assert all(one is found.services[one.name] for one in found.policy.services)

    asyncio.run(follow())


def test_policies_come_and_go_and_few_are_kept() -> None:
    active = Server().active
    for number in range(30):
        loaded = policy_of(f"- {{name: s{number}, match: {{namespaces: [shop]}}}}\n")
        assert set(active.compiled(loaded).services) == {f"s{number}"}
    assert len(active._bases) == len(active._active) == 8


async def test_a_policy_that_is_in_force_again_is_kept_while_older_ones_go(counting: Counting) -> None:
    active = Server().active
    policies = [policy_of(f"- {{name: s{number}, match: {{namespaces: [shop]}}}}\n") for number in range(9)]
    again, *others, new = policies
    for loaded in (again, *others, again, new):
        await active.prepare(loaded)
    counting.made = 0
    assert set(active.compiled(again).services) == {"s0"}
    assert counting.made == 0
    assert len(active._bases) == 8


def test_garbage_is_not_collected_while_a_policy_is_built_and_what_was_built_is_set_aside() -> None:
    before = gc.get_freeze_count()
    with put_off():
        assert not gc.isenabled()
        built = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(built)
