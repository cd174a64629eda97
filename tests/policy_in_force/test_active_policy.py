"""The active policy is compiled in parts when it is swapped; reviews compile nothing."""

import asyncio
import functools
import gc
import itertools
import threading
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
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.loading import load_again
from webhook.core.overrides import Override, apply_overrides
from webhook.core.overrides.loading import load as load_overrides
from webhook.core.placement import PlacementPlan
from webhook.core.pod_rules import RulePlan
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview
from webhook.core.quota import CounterPlan
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force import active_policy
from webhook.policy_in_force.active_overrides import ActiveOverrides, NoOverrides
from webhook.policy_in_force.active_policy import SERVICES_PER_TURN_MAX, ActivePolicy
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.support.process_memory import defer_collection

PLANS: Sequence[tuple[type[Any], str]] = (
    (CounterPlan, "from_service"),
    (PlacementPlan, "from_placement"),
    (RangePlan, "from_rules"),
)
NUMBER = 10 * SERVICES_PER_TURN_MAX
SECOND_US = 1_000_000


def format_entry(second: int, operation: str, service: str = "s1") -> str:
    """Return an entry that ends this many seconds after `END`."""
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


class InProcessCheck:
    """A policy check in this process."""

    async def load(self, raw: bytes, purpose: Purpose) -> LoadedPolicy:
        return load(raw, purpose).policy

    async def review(self, asked: DocumentReview) -> PolicyReview:
        raise NotImplementedError


class Server:
    """Overrides, policy and interceptor, connected as in a server."""

    def __init__(self) -> None:
        self.wall = FixedClock()
        self.overrides = ActiveOverrides(OverridesRecorder(), self.wall, "here")
        clock = VirtualClock()
        self.active = ActivePolicy(self.overrides, clock)
        self.overrides.prepare = self.active.prepare
        self.current_policy = PolicyReceiver(Observers(), clock, InProcessCheck(), active=self.active)
        self.interceptor = Interceptor(self.current_policy, MemoryStore(clock), FixedNamespaces(), Observers())

    @property
    def compiled(self) -> CompiledPolicy:
        compiled = self.current_policy.get_current()
        assert compiled is not None
        return compiled

    async def find_selector(self, service: str = "s1") -> object:
        """Return the node selector that a review writes."""
        review_body = body(namespace=f"n{service[1:]}", object=pod())
        decision = (await self.interceptor.review(Half.MUTATE, review_body)).decision
        return next(operation.value for operation in decision.patch if operation.path == "/spec/nodeSelector")

    def find_hard(self, service: str = "s1") -> int:
        return self.compiled.plans[service].windows[0].limits[0].hard


class CompileCounter:
    """Counts compiled plans."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for kind, name in PLANS:
            monkeypatch.setattr(kind, name, self._wrap(getattr(kind, name)))

    def _wrap(self, make: Any) -> Any:
        def count_and_make(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            return make(*arguments, **keywords)

        return count_and_make

    async def count_compiled(self, server: Server, number: int = NUMBER) -> int:
        """Return the number of plans that reviews of `number` services compile."""
        before = self.count
        for n in range(number):
            await server.find_selector(f"s{n}")
        return self.count - before


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounter:
    return CompileCounter(monkeypatch)


async def test_a_policy_is_compiled_a_few_services_in_each_turn_of_the_loop(counter: CompileCounter) -> None:
    loaded = load_again(policy())  # the proof would compile the plan of one service
    active, turns, counter.count = ActivePolicy(NoOverrides(), VirtualClock()), [0], 0
    swapping = asyncio.create_task(active.swap(loaded))
    while not swapping.done():
        await asyncio.sleep(0)
        turns.append(counter.count)
    per_turn = [after - before for before, after in itertools.pairwise(turns)]
    assert counter.count == NUMBER * len(PLANS)
    assert max(per_turn) <= SERVICES_PER_TURN_MAX * len(PLANS)


async def test_reviews_during_a_swap_use_the_former_policy(counter: CompileCounter) -> None:
    server = Server()
    await server.current_policy.on_document(policy("hdd"), "p.yaml")
    former, count = server.compiled, counter.count
    offer = asyncio.create_task(server.current_policy.on_document(policy("ssd"), "p.yaml"))
    reviews_between = 0
    while not offer.done():
        await asyncio.sleep(0)
        if not offer.done() and counter.count > count:
            reviews_between += 1
            assert server.compiled is former
            assert await server.find_selector() == {"disk": "hdd"}
    assert reviews_between >= NUMBER // SERVICES_PER_TURN_MAX - 1
    assert await server.find_selector() == {"disk": "ssd"}


async def test_reviews_never_compile_a_policy(counter: CompileCounter) -> None:
    server = Server()
    await server.current_policy.on_document(policy("hdd"), "p.yaml")
    assert await counter.count_compiled(server) == 0
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert (server.find_hard("s1"), server.find_hard("s3")) == (15, 5)
    assert await counter.count_compiled(server) == 0
    await server.current_policy.on_document(policy("ssd"), "p.yaml")
    assert (server.find_hard("s1"), server.find_hard("s3")) == (15, 5)
    assert await counter.count_compiled(server) == 0


ENDS = {
    "one of two entries of a service": (
        "",
        format_entry(0, "quotaFactor: 3"),
        format_entry(1, "modes: {quota: Audit}"),
    ),
    "what raised breakerGuard's limit": (
        "breakerGuard: {maxOpenPercent: 100}",
        format_entry(0, "modes: {breaker: Enforce}", "s1"),
        format_entry(1, "modes: {breaker: Enforce}", "s3"),
        format_entry(2, "quotaFactor: 3", "s2"),
    ),
    "the clash of a newer document": (
        "",
        format_entry(0, "quotaFactor: 3"),
        format_entry(1, "quotaFactor: 4"),
        format_entry(2, "modes: {quota: Audit}"),
    ),
}


@pytest.mark.parametrize("case", ENDS)
async def test_reviews_compile_nothing_when_an_entry_expires(counter: CompileCounter, case: str) -> None:
    head, *entries = ENDS[case]
    server, document = Server(), "".join(entries)
    await server.current_policy.on_document(policy(number=20, head=head), "p.yaml")
    await server.overrides.on_document(entry("s7").encode(), "o.yaml")
    await server.overrides.on_document(document.encode(), "o.yaml")
    original, parsed = server.current_policy.get_loaded(), load_overrides(document.encode())
    assert original is not None
    for second in range(len(entries)):
        server.wall.us = END_US + second * SECOND_US
        before = server.compiled
        assert await counter.count_compiled(server, 20) == 0
        assert not parsed.find_clashes(server.wall.us)
        expected = CompiledPolicy(apply_overrides(original, parsed.list_live(server.wall.us)))
        assert (before.plans, before.policy) == (expected.plans, expected.policy)
        await server.overrides.look_ahead()
        assert server.compiled is before


async def test_policy_swapped_before_an_expiry_is_compiled_for_it(counter: CompileCounter) -> None:
    server = Server()
    await server.current_policy.on_document(policy("hdd"), "p.yaml")
    await server.overrides.on_document(
        (format_entry(0, "quotaFactor: 3") + format_entry(1, "quotaFactor: 4", "s2")).encode(), "o"
    )
    await server.current_policy.on_document(policy("ssd"), "p.yaml")
    server.wall.us = END_US
    assert await counter.count_compiled(server) == 0
    assert (server.find_hard("s1"), server.find_hard("s2")) == (5, 20)


async def test_expiry_takes_effect_only_after_its_preparation(counter: CompileCounter) -> None:
    server = Server()
    await server.current_policy.on_document(policy(), "p.yaml")
    await server.overrides.on_document(
        (format_entry(0, "quotaFactor: 3") + format_entry(1, "quotaFactor: 4", "s2")).encode(), "o"
    )
    server.wall.us = END_US + SECOND_US  # both have expired since the last preparation
    assert (server.find_hard("s1"), server.find_hard("s2")) == (5, 20)
    assert await counter.count_compiled(server) == 0
    await server.overrides.look_ahead()
    assert (server.find_hard("s1"), server.find_hard("s2")) == (5, 5)


async def test_overrides_compile_the_services_that_they_concern(counter: CompileCounter) -> None:
    server = Server()
    await server.current_policy.on_document(policy(), "p.yaml")
    before, counter.count = server.compiled, 0
    await server.overrides.on_document(entry("s1").encode(), "o.yaml")
    assert counter.count == len(PLANS)
    assert server.compiled.parts["s2"] is before.parts["s2"]
    await server.overrides.on_document((entry("s1") + entry("s2")).encode(), "o.yaml")
    assert counter.count == 2 * len(PLANS)


SERVICES = [f"s{n}" for n in range(8)]
OPERATIONS = (
    "quotaFactor: 3",
    "quotaFactor: 4",
    "modes: {breaker: Enforce}",
    "modes: {breaker: Audit}",
    "modes: {quota: Audit}",
    "breaker: ForcedOpen",
)
ENTRIES = st.builds(format_entry, st.integers(0, 5), st.sampled_from(OPERATIONS), st.sampled_from(SERVICES))
STEPS = st.one_of(
    st.tuples(st.just("overrides"), st.lists(ENTRIES, max_size=6).map("".join)),
    st.tuples(st.just("overrides"), st.just("- nonsense")),
    st.tuples(st.just("unreadable"), st.just("")),
    st.tuples(st.just("policy"), st.sampled_from(["ssd", "hdd"])),
)
SERIES = st.lists(STEPS, min_size=1, max_size=6)
GAPS = st.sampled_from([0, 1, 1, 2])
STAGGERED_ENTRIES = "".join(format_entry(n, operation, f"s{n}") for n, operation in enumerate(OPERATIONS))
TURNS = st.lists(st.integers(0, 9), min_size=7, max_size=7)
"""Turns of the loop in each second."""


@functools.cache
def build_guarded_policy(disk: str) -> bytes:
    return policy(disk, len(SERVICES), "breakerGuard: {maxOpenPercent: 100}")


async def apply_step(server: Server, step: tuple[str, str]) -> None:
    match step:
        case ("overrides", text):
            await server.overrides.on_document(text.encode(), "o.yaml")
        case ("policy", disk):
            await server.current_policy.on_document(build_guarded_policy(disk), "p.yaml")
        case _:
            await server.overrides.on_unreadable(["o.yaml: cannot be read"])


class Oracle:
    """Computes the overrides in force from the documents and the time."""

    def __init__(self) -> None:
        self.good, self.newest = load_overrides(b""), load_overrides(b"")

    def apply(self, step: tuple[str, str]) -> None:
        if step[0] != "policy":
            try:
                self.newest = load_overrides(step[1].encode()) if step[0] == "overrides" else self.good
            except DocumentError:
                self.newest = self.good

    def list_live(self, now_us: int) -> dict[str, tuple[Override, ...]]:
        if not self.newest.find_clashes(now_us):
            self.good = self.newest
        return self.good.list_live(now_us)


def check_equal(
    compiled: CompiledPolicy | None, loaded: LoadedPolicy | None, live: Mapping[str, tuple[Override, ...]]
) -> None:
    assert compiled is not None
    assert loaded is not None
    expected = CompiledPolicy(apply_overrides(loaded, live))
    assert (compiled.plans, compiled.counted, compiled.policy) == (expected.plans, expected.counted, expected.policy)
    assert all(service is compiled.services[service.name] for service in compiled.policy.services)


@examples(100)
@given(st.lists(st.tuples(GAPS, STEPS), min_size=1, max_size=12))
def test_policy_in_force_equals_one_compiled_at_that_time(
    steps: list[tuple[int, tuple[str, str]]],
) -> None:
    async def run_steps() -> None:
        server, oracle = Server(), Oracle()
        server.wall.us = END_US - SECOND_US
        await apply_step(server, ("policy", "ssd"))
        with pytest.MonkeyPatch.context() as monkeypatch:
            counter = CompileCounter(monkeypatch)
            for gap, step in steps:
                for _ in range(gap):
                    server.wall.us += SECOND_US
                    count = counter.count
                    compiled = server.current_policy.get_current()
                    assert counter.count == count
                    check_equal(compiled, server.current_policy.get_loaded(), oracle.list_live(server.wall.us))
                    await server.overrides.look_ahead()
                await apply_step(server, step)
                oracle.apply(step)
                check_equal(
                    server.current_policy.get_current(),
                    server.current_policy.get_loaded(),
                    oracle.list_live(server.wall.us),
                )

    asyncio.run(run_steps())


@examples(100)
@given(SERIES, SERIES, TURNS)
def test_policy_in_force_is_compiled_in_every_turn_of_the_loop(
    first: list[tuple[str, str]], second: list[tuple[str, str]], turns: list[int]
) -> None:
    async def run_steps() -> None:
        server = Server()
        server.wall.us = END_US - SECOND_US
        await apply_step(server, ("overrides", STAGGERED_ENTRIES))
        await apply_step(server, ("policy", "ssd"))

        async def apply_series(series: list[tuple[str, str]]) -> None:
            for step in series:
                await apply_step(server, step)
                await server.overrides.look_ahead()

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(active_policy, "SERVICES_PER_TURN_MAX", 1)
            monkeypatch.setattr(asyncio, "to_thread", call_later)
            counter, tasks = (
                CompileCounter(monkeypatch),
                [asyncio.create_task(apply_series(series)) for series in (first, second)],
            )
            turns_passed = itertools.count()
            while not all(task.done() for task in tasks):
                if turns and next(turns_passed) == turns[0]:
                    del turns[0]
                    server.wall.us, turns_passed = server.wall.us + SECOND_US, itertools.count()
                count = counter.count
                compiled = server.current_policy.get_current()
                assert counter.count == count
                check_equal(compiled, server.current_policy.get_loaded(), server.overrides.get_current().entries)
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    asyncio.run(run_steps())


async def call_later(call: Any, *arguments: Any) -> Any:
    """Call in the loop's thread, some turns later."""
    for _ in range(3):
        await asyncio.sleep(0)
    return call(*arguments)


def build_numbered_policy(number: int) -> LoadedPolicy:
    return policy_of(f"- {{name: s{number}, match: {{namespaces: [shop]}}}}\n")


async def test_only_the_most_recent_policies_are_kept(counter: CompileCounter) -> None:
    server, policies = Server(), [build_numbered_policy(number) for number in range(30)]
    for loaded in policies:
        await server.active.swap(loaded)
    kept = [loaded for loaded in policies if server.current_policy.find_by_hash(loaded.hash) is not None]
    assert kept == policies[-8:]
    counter.count = 0
    await server.overrides.on_document("".join(map(entry, (f"s{n}" for n in range(30)))).encode(), "o.yaml")
    assert counter.count == len(kept)


async def test_policy_in_force_again_is_kept_and_not_compiled_again(counter: CompileCounter) -> None:
    server = Server()
    again, *others, new = [build_numbered_policy(number) for number in range(9)]
    count = []
    for loaded in (again, *others, again, new):
        counter.count = 0
        await server.active.swap(loaded)
        count.append(counter.count)
        assert server.current_policy.get_loaded() is loaded
    assert count == [1, *(1 for _ in others), 0, 1]
    compiled = server.current_policy.find_by_hash(again.hash)
    assert compiled is not None
    assert set(compiled.services) == {"s0"}


def test_garbage_collection_is_off_while_a_policy_is_built_and_its_objects_are_frozen() -> None:
    before = gc.get_freeze_count()
    with defer_collection():
        assert not gc.isenabled()
        built = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(built)


async def test_rules_are_compiled_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones of a process import the library, for which no review waits."""
    threads: list[threading.Thread] = []
    compile_rules = RulePlan.compile

    def record_thread(*arguments: Any, **keywords: Any) -> RulePlan:
        threads.append(threading.current_thread())
        return compile_rules(*arguments, **keywords)

    rule = "{name: r, require: 'pod.name != \"\"'}"
    services = "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}, rules: [{rule}]}}\n" for n in range(3))
    loaded = load_again(f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}".encode())
    monkeypatch.setattr(RulePlan, "compile", record_thread)
    active = ActivePolicy(NoOverrides(), VirtualClock())
    await active.swap(loaded)
    found = active.get_current()
    assert found is not None
    assert all(service.rule_plan.rules for service in found.services.values())
    assert len(threads) == 3
    assert threading.main_thread() not in threads
