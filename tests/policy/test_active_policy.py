"""The active policy is compiled where it is swapped, in parts; a review compiles nothing, and all go by the same."""

import asyncio
import functools
import gc
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import body, pod, policy_of
from tests.core.strategies import examples
from tests.harness.overrides import END, END_US, FixedClock, OverridesRecorder, entry
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.container_resources import RangePlan
from webhook.core.document import DocumentError, LoadResult, Purpose, load
from webhook.core.overrides import Override, overridden
from webhook.core.overrides_document import load as load_overrides
from webhook.core.placement import PlacementPlan
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview
from webhook.core.quota import CounterPlan
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy import active_policy
from webhook.policy.active_overrides import ActiveOverrides, NoOverrides
from webhook.policy.active_policy import AT_A_TIME, ActivePolicy
from webhook.policy.current_policy import CurrentPolicy
from webhook.support.garbage_collection import put_off

PLANS: Sequence[type[Any]] = (CounterPlan, PlacementPlan, RangePlan)
NUMBER = 10 * AT_A_TIME
SECOND_US = 1_000_000


def timed(second: int, operation: str, service: str = "s1") -> str:
    """Return an entry that ends that many seconds after `END`."""
    until = END.replace("00Z", f"{second:02}Z")
    return f"- {{service: {service}, until: {until}, reason: r, {operation}}}\n"


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
        self.wall = FixedClock()
        self.overrides = ActiveOverrides(OverridesRecorder(), self.wall, "here")
        clock = VirtualClock()
        self.active = ActivePolicy(self.overrides, clock)
        self.overrides.prepare = self.active.prepare
        self.keeper = CurrentPolicy(Observers(), clock, Here(), active=self.active)
        self.interceptor = Interceptor(self.keeper, MemoryStore(clock), FixedNamespaces(), Observers())

    @property
    def compiled(self) -> CompiledPolicy:
        found = self.keeper.current()
        assert found is not None
        return found

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

    async def reviews(self, server: Server, number: int = NUMBER) -> int:
        """Return how much is compiled by reviews of that many services."""
        before = self.made
        for n in range(number):
            await server.selector(f"s{n}")
        return self.made - before


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


async def test_a_policy_is_compiled_a_few_services_in_each_turn_of_the_loop(counting: Counting) -> None:
    loaded = load(policy(), Purpose.SERVE).policy
    active, turns, counting.made = ActivePolicy(NoOverrides(), VirtualClock()), [0], 0
    swapping = asyncio.create_task(active.swap(loaded))
    while not swapping.done():
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


async def test_reviews_never_compile_a_policy(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy("hdd"), "p.yaml")
    assert await counting.reviews(server) == 0
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert (server.hard("s1"), server.hard("s3")) == (15, 5)
    assert await counting.reviews(server) == 0
    await server.keeper.on_document(policy("ssd"), "p.yaml")
    assert (server.hard("s1"), server.hard("s3")) == (15, 5)
    assert await counting.reviews(server) == 0


ENDS = {
    "one of two entries of a service": ("", timed(0, "quotaFactor: 3"), timed(1, "modes: {quota: Audit}")),
    "what raised breakerGuard's limit": (
        "breakerGuard: {maxOpenPercent: 100}",
        timed(0, "modes: {breaker: Enforce}", "s1"),
        timed(1, "modes: {breaker: Enforce}", "s3"),
        timed(2, "quotaFactor: 3", "s2"),
    ),
    "the clash of a newer document": (
        "",
        timed(0, "quotaFactor: 3"),
        timed(1, "quotaFactor: 4"),
        timed(2, "modes: {quota: Audit}"),
    ),
}


@pytest.mark.parametrize("case", ENDS)
async def test_no_review_compiles_anything_when_an_entry_ends_by_itself(counting: Counting, case: str) -> None:
    head, *entries = ENDS[case]
    server, document = Server(), "".join(entries)
    await server.keeper.on_document(policy(number=20, head=head), "p.yaml")
    await server.overrides.on_document(entry("s7").encode(), "o.yaml")
    await server.overrides.on_document(document.encode(), "o.yaml")
    own, parsed = server.keeper.loaded(), load_overrides(document.encode())
    assert own is not None
    for second in range(len(entries)):
        server.wall.us = END_US + second * SECOND_US
        before = server.compiled
        assert await counting.reviews(server, 20) == 0
        assert not parsed.clashes(server.wall.us)
        expected = CompiledPolicy(overridden(own, parsed.live(server.wall.us)))
        assert (before.plans, before.policy) == (expected.plans, expected.policy)
        await server.overrides.look_ahead()
        assert server.compiled is before


async def test_a_policy_that_is_swapped_meanwhile_is_compiled_for_the_next_end_too(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy("hdd"), "p.yaml")
    await server.overrides.on_document((timed(0, "quotaFactor: 3") + timed(1, "quotaFactor: 4", "s2")).encode(), "o")
    await server.keeper.on_document(policy("ssd"), "p.yaml")
    server.wall.us = END_US
    assert await counting.reviews(server) == 0
    assert (server.hard("s1"), server.hard("s2")) == (5, 20)


async def test_an_end_that_is_not_prepared_yet_waits_for_its_preparation(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy(), "p.yaml")
    await server.overrides.on_document((timed(0, "quotaFactor: 3") + timed(1, "quotaFactor: 4", "s2")).encode(), "o")
    server.wall.us = END_US + SECOND_US  # both have ended since anything was prepared
    assert (server.hard("s1"), server.hard("s2")) == (5, 20)
    assert await counting.reviews(server) == 0
    await server.overrides.look_ahead()
    assert (server.hard("s1"), server.hard("s2")) == (5, 5)


async def test_overrides_compile_the_services_that_they_concern(counting: Counting) -> None:
    server = Server()
    await server.keeper.on_document(policy(), "p.yaml")
    before, counting.made = server.compiled, 0
    await server.overrides.on_document(entry("s1").encode(), "o.yaml")
    assert counting.made == len(PLANS)
    assert server.compiled.parts["s2"] is before.parts["s2"]
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert counting.made == 2 * len(PLANS)


SERVICES = [f"s{n}" for n in range(8)]
OPERATIONS = (
    "quotaFactor: 3",
    "quotaFactor: 4",
    "modes: {breaker: Enforce}",
    "modes: {breaker: Audit}",
    "modes: {quota: Audit}",
    "breaker: ForcedOpen",
)
ENTRIES = st.builds(timed, st.integers(0, 5), st.sampled_from(OPERATIONS), st.sampled_from(SERVICES))
STEPS = st.one_of(
    st.tuples(st.just("overrides"), st.lists(ENTRIES, max_size=6).map("".join)),
    st.tuples(st.just("overrides"), st.just("- nonsense")),
    st.tuples(st.just("unreadable"), st.just("")),
    st.tuples(st.just("policy"), st.sampled_from(["ssd", "hdd"])),
)
SERIES = st.lists(STEPS, min_size=1, max_size=6)
GAPS = st.sampled_from([0, 1, 1, 2])
ONE_AFTER_THE_OTHER = "".join(timed(n, operation, f"s{n}") for n, operation in enumerate(OPERATIONS))
TURNS = st.lists(st.integers(0, 9), min_size=7, max_size=7)
"""How many turns of the loop pass in each second."""


@functools.cache
def guarded(disk: str) -> bytes:
    return policy(disk, len(SERVICES), "breakerGuard: {maxOpenPercent: 100}")


async def done(server: Server, step: tuple[str, str]) -> None:
    match step:
        case ("overrides", text):
            await server.overrides.on_document(text.encode(), "o.yaml")
        case ("policy", disk):
            await server.keeper.on_document(guarded(disk), "p.yaml")
        case _:
            await server.overrides.on_unreadable(["o.yaml: cannot be read"])


class Oracle:
    """What is in force, by the documents and the time alone."""

    def __init__(self) -> None:
        self.good, self.newest = load_overrides(b""), load_overrides(b"")

    def done(self, step: tuple[str, str]) -> None:
        if step[0] != "policy":
            try:
                self.newest = load_overrides(step[1].encode()) if step[0] == "overrides" else self.good
            except DocumentError:
                self.newest = self.good

    def live(self, now_us: int) -> dict[str, tuple[Override, ...]]:
        if not self.newest.clashes(now_us):
            self.good = self.newest
        return self.good.live(now_us)


def agree(found: CompiledPolicy | None, loaded: LoadedPolicy | None, live: Mapping[str, tuple[Override, ...]]) -> None:
    assert found is not None
    assert loaded is not None
    expected = CompiledPolicy(overridden(loaded, live))
    assert (found.plans, found.counted, found.policy) == (expected.plans, expected.counted, expected.policy)
    assert all(one is found.services[one.name] for one in found.policy.services)


@examples(100)
@given(st.lists(st.tuples(GAPS, STEPS), min_size=1, max_size=12))
def test_whatever_follows_and_ends_the_policy_is_as_if_compiled_at_that_instant(
    steps: list[tuple[int, tuple[str, str]]],
) -> None:
    async def follow() -> None:
        server, oracle = Server(), Oracle()
        server.wall.us = END_US - SECOND_US
        await done(server, ("policy", "ssd"))
        with pytest.MonkeyPatch.context() as monkeypatch:
            counting = Counting(monkeypatch)
            for gap, step in steps:
                for _ in range(gap):
                    server.wall.us += SECOND_US
                    made = counting.made
                    found = server.keeper.current()
                    assert counting.made == made
                    agree(found, server.keeper.loaded(), oracle.live(server.wall.us))
                    await server.overrides.look_ahead()
                await done(server, step)
                oracle.done(step)
                agree(server.keeper.current(), server.keeper.loaded(), oracle.live(server.wall.us))

    asyncio.run(follow())


@examples(100)
@given(SERIES, SERIES, TURNS)
def test_in_every_turn_of_the_loop_all_that_is_in_force_is_compiled_already(
    one: list[tuple[str, str]], another: list[tuple[str, str]], turns: list[int]
) -> None:
    async def follow() -> None:
        server = Server()
        server.wall.us = END_US - SECOND_US
        await done(server, ("overrides", ONE_AFTER_THE_OTHER))
        await done(server, ("policy", "ssd"))

        async def doing(series: list[tuple[str, str]]) -> None:
            for step in series:
                await done(server, step)
                await server.overrides.look_ahead()

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(active_policy, "AT_A_TIME", 1)
            monkeypatch.setattr(asyncio, "to_thread", in_turns)
            counting, tasks = Counting(monkeypatch), [asyncio.create_task(doing(series)) for series in (one, another)]
            passed = itertools.count()
            while not all(task.done() for task in tasks):
                if turns and next(passed) == turns[0]:
                    del turns[0]
                    server.wall.us, passed = server.wall.us + SECOND_US, itertools.count()
                made = counting.made
                found = server.keeper.current()
                assert counting.made == made
                agree(found, server.keeper.loaded(), server.overrides.current().entries)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    asyncio.run(follow())


async def in_turns(call: Any, *arguments: Any) -> Any:
    """Call in the loop's thread, some turns later."""
    for _ in range(3):
        await asyncio.sleep(0)
    return call(*arguments)


def numbered(number: int) -> LoadedPolicy:
    return policy_of(f"- {{name: s{number}, match: {{namespaces: [shop]}}}}\n")


async def test_policies_come_and_go_and_few_are_kept(counting: Counting) -> None:
    server, policies = Server(), [numbered(number) for number in range(30)]
    for loaded in policies:
        await server.active.swap(loaded)
    kept = [loaded for loaded in policies if server.keeper.by_hash(loaded.hash) is not None]
    assert kept == policies[-8:]
    counting.made = 0
    await server.overrides.on_document("".join(map(entry, (f"s{n}" for n in range(30)))).encode(), "o.yaml")
    assert counting.made == len(kept)


async def test_a_policy_that_is_in_force_again_is_kept_while_older_ones_go(counting: Counting) -> None:
    server = Server()
    again, *others, new = [numbered(number) for number in range(9)]
    made = []
    for loaded in (again, *others, again, new):
        counting.made = 0
        await server.active.swap(loaded)
        made.append(counting.made)
        assert server.keeper.loaded() is loaded
    assert made == [1, *(1 for _ in others), 0, 1]
    found = server.keeper.by_hash(again.hash)
    assert found is not None
    assert set(found.services) == {"s0"}


def test_garbage_is_not_collected_while_a_policy_is_built_and_what_was_built_is_set_aside() -> None:
    before = gc.get_freeze_count()
    with put_off():
        assert not gc.isenabled()
        built = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(built)
