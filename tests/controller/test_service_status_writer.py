"""The writer of ServiceStatuses: changes are written, within bounds, and nothing else."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.harness.fake_apiserver import until
from webhook.controller import ServiceStatusReports, ServiceStatusTiming, ServiceStatusWriter
from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document.loading import load_effective
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan
from webhook.core.reporting.service_status import service_status
from webhook.errors import ServiceStatusError, ServiceStatusNotInstalledError

CLOSED, OPEN = BreakerView(State.CLOSED, 0, 0), BreakerView(State.OPEN, 1, 1_800_000_000_000_000, 1_800_000_180_000_000)
PACE = ServiceStatusTiming(
    round_seconds=1, writes_max=2, read_seconds=300, first_pause_seconds=1, longest_pause_seconds=4
)
NEVER = ServiceStatusTiming(writes_max=2, read_seconds=0)
"""It looks each time."""
FORBIDDEN = ServiceStatusError("cannot write: HTTP 403")


def compiled(*services: str, mode: str = "Enforce") -> CompiledPolicy:
    """Return services with a breaker each, but for those that are called plain."""
    breaker = f"breaker: {{quotaExceeded: {{}}}}, modes: {{breaker: {mode}}}"
    breaker += ", quota: {windows: [{window: 1m, hard: {pods: 1}}]}"
    rows = [f"- {{name: {name}, match: {{namespaces: [{name}]}}, {breaker}}}" for name in services if name != "plain"]
    rows += ["- {name: plain, match: {namespaces: [plain]}}"] * ("plain" in services)
    text = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n" + "\n".join(rows)
    return CompiledPolicy(LoadedPolicy(load_effective(text.encode(), None).policy, "0" * 16))


class Board:
    """A board that may be away, not be there, or refuse some services; it notes what it was asked."""

    def __init__(self, stands: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.stands = dict(stands or {})
        self.refuses: dict[str, Exception] = {}
        self.asked: list[str] = []

    async def read(self) -> Mapping[str, Mapping[str, Any]]:
        self._ask("read")
        return self.stands

    async def write(self, service: str, status: Mapping[str, Any]) -> None:
        self._ask(service)
        self.stands = {**self.stands, service: status}

    async def delete(self, service: str) -> None:
        self._ask(f"-{service}")
        self.stands = {name: status for name, status in self.stands.items() if name != service}

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        for of in (what, "*"):
            if of in self.refuses:
                raise self.refuses[of]

    def take_asked(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


class World:
    """A policy, its breakers, a board, and who keeps it."""

    def __init__(self, *services: str, board: Board | None = None, timing: ServiceStatusTiming = PACE) -> None:
        self.policy: CompiledPolicy | None = compiled(*services)
        self.views: dict[str, BreakerView] = dict.fromkeys(services, CLOSED)
        self.board = board or Board()
        self.told: list[str] = []
        say = self.told.append
        reports = ServiceStatusReports(lambda text: say(f"absent {text}"), say, lambda text: say(f"over {text}"))
        self.boards = ServiceStatusWriter(self.board, self._known, lambda: self.policy, reports, timing=timing)

    def _known(self, plan: CounterPlan) -> BreakerView | None:
        return self.views.get(plan.service)

    def status(self, service: str) -> Mapping[str, Any]:
        assert self.policy is not None
        return service_status(self.policy.plans[service], self.views[service])

    async def round(self) -> list[str]:
        """Go one round; return what the board was asked."""
        await self.boards.round()
        return self.board.take_asked()


async def test_what_has_changed_is_written_and_nothing_else() -> None:
    world = World("a", "b")
    assert await world.round() == ["read", "a", "b"]
    assert await world.round() == []
    world.views["b"] = OPEN
    assert await world.round() == ["b"]
    assert world.board.stands == {"a": world.status("a"), "b": world.status("b")}
    assert world.board.stands["b"]["breaker"]["state"] == "OPEN"


async def test_who_leads_next_writes_only_what_does_not_stand_there() -> None:
    world = World("a", "b")
    world.board.stands = {"a": world.status("a"), "b": {}}
    assert await world.round() == ["read", "b"]


async def test_no_more_than_so_many_are_written_in_one_round_and_who_waits_longest_comes_first() -> None:
    world = World("a", "b", "c")
    assert await world.round() == ["read", "a", "b"]
    world.views |= {"a": OPEN, "b": OPEN}
    assert await world.round() == ["c", "a"]
    assert await world.round() == ["b"]


async def test_what_the_policy_has_no_more_is_taken_away() -> None:
    world = World("a", "b")
    await world.round()
    world.policy = compiled("b")
    assert await world.round() == ["-a"]
    assert set(world.board.stands) == {"b"}
    world.policy = None
    assert await world.round() == [], "without a policy nobody knows whose place it is"


async def test_what_the_policy_changes_is_written_too() -> None:
    world = World("a")
    await world.round()
    world.policy = compiled("a")
    assert await world.round() == [], "made anew, and no different"
    world.policy = compiled("a", mode="Audit")
    assert await world.round() == ["a"]
    assert world.board.stands["a"]["breaker"]["mode"] == "Audit"


async def test_a_service_without_a_breaker_has_a_place_too() -> None:
    world = World("a", "plain")
    await world.round()
    assert world.board.stands["plain"] == {}


async def test_of_a_breaker_that_was_not_counted_of_what_stands_there_stays() -> None:
    world = World("a")
    world.board.stands = {"a": {"breaker": {"state": "OPEN"}}}
    world.views.clear()
    assert await world.round() == ["read"]
    world.views["a"] = CLOSED
    assert await world.round() == ["a"]


async def test_what_another_client_has_changed_is_mended_at_the_next_look() -> None:
    world = World("a", "b", timing=NEVER)
    await world.round()
    world.board.stands = {"b": {}}
    assert await world.round() == ["read", "a", "b"]


async def test_where_there_is_no_board_that_is_reported_once_and_asked_again_later() -> None:
    world = World("a")
    world.board.refuses["*"] = ServiceStatusNotInstalledError("put one up")
    assert [await world.boards.round() for _ in range(2)] == [PACE.read_seconds] * 2
    assert world.told == ["absent put one up"]
    world.board.refuses.clear()
    world.board.take_asked()
    assert await world.round() == ["read", "a"]
    world.board.refuses["*"] = ServiceStatusNotInstalledError("put one up")
    world.views["a"] = OPEN
    assert await world.boards.round() == PACE.read_seconds, "somebody has taken it away"
    assert world.told == ["absent put one up"] * 2
    world.board.refuses.clear()
    world.board.stands, world.board.asked = {}, []
    assert await world.round() == ["read", "a"], "whoever put up another, nothing stands there"


async def test_a_board_that_gives_no_answer_is_reported_of_once_and_asked_with_growing_pauses() -> None:
    world = World("a")
    world.board.refuses["*"] = FORBIDDEN
    assert [await world.boards.round() for _ in range(4)] == [1, 2, 4, 4]
    world.board.refuses["*"] = ServiceStatusError("busy", retry_after_seconds=30)
    assert await world.boards.round() == 30
    world.board.refuses.clear()
    assert await world.boards.round() == PACE.round_seconds
    assert world.told == [f"{FORBIDDEN}", f"over {FORBIDDEN}", "busy", "over busy"]
    world.board.refuses["a"], world.views["a"] = FORBIDDEN, OPEN
    assert await world.boards.round() == 1, "the pauses begin anew"


async def test_a_trouble_that_ends_where_there_is_no_board_is_not_reported_to_be_over() -> None:
    world = World("a")
    for error in (
        ServiceStatusNotInstalledError("put one up"),
        FORBIDDEN,
        ServiceStatusNotInstalledError("put one up"),
        ServiceStatusNotInstalledError("put one up"),
    ):
        world.board.refuses["*"] = error
        await world.boards.round()
    assert world.told == ["absent put one up", f"{FORBIDDEN}", "absent put one up"]


async def test_a_service_that_is_refused_holds_up_no_other() -> None:
    world = World("a", "b", "c")
    world.board.refuses["a"] = FORBIDDEN
    assert await world.round() == ["read", "a"]
    assert await world.round() == ["b", "c"]
    assert await world.round() == ["a"]
    world.board.refuses.clear()
    assert await world.round() == ["a"]


async def test_it_goes_on_until_cancelled() -> None:
    world = World("a", timing=ServiceStatusTiming(round_seconds=0))
    keeping = asyncio.create_task(world.boards.run())
    await until(lambda: "a" in world.board.stands)
    world.views["a"] = OPEN
    await until(lambda: world.board.stands["a"] == world.status("a"))
    keeping.cancel()
