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
        self.reported: list[str] = []
        say = self.reported.append
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


async def test_only_changed_statuses_are_written() -> None:
    simulation = World("a", "b")
    assert await simulation.round() == ["read", "a", "b"]
    assert await simulation.round() == []
    simulation.views["b"] = OPEN
    assert await simulation.round() == ["b"]
    assert simulation.board.stands == {"a": simulation.status("a"), "b": simulation.status("b")}
    assert simulation.board.stands["b"]["breaker"]["state"] == "OPEN"


async def test_next_leader_writes_only_differing_statuses() -> None:
    simulation = World("a", "b")
    simulation.board.stands = {"a": simulation.status("a"), "b": {}}
    assert await simulation.round() == ["read", "b"]


async def test_writes_per_round_are_bounded_and_oldest_first() -> None:
    simulation = World("a", "b", "c")
    assert await simulation.round() == ["read", "a", "b"]
    simulation.views |= {"a": OPEN, "b": OPEN}
    assert await simulation.round() == ["c", "a"]
    assert await simulation.round() == ["b"]


async def test_status_of_a_removed_service_is_deleted() -> None:
    simulation = World("a", "b")
    await simulation.round()
    simulation.policy = compiled("b")
    assert await simulation.round() == ["-a"]
    assert set(simulation.board.stands) == {"b"}
    simulation.policy = None
    assert await simulation.round() == [], "without a policy nobody knows whose place it is"


async def test_policy_changes_are_written() -> None:
    simulation = World("a")
    await simulation.round()
    simulation.policy = compiled("a")
    assert await simulation.round() == [], "made anew, and no different"
    simulation.policy = compiled("a", mode="Audit")
    assert await simulation.round() == ["a"]
    assert simulation.board.stands["a"]["breaker"]["mode"] == "Audit"


async def test_service_without_a_breaker_has_a_status() -> None:
    simulation = World("a", "plain")
    await simulation.round()
    assert simulation.board.stands["plain"] == {}


async def test_status_of_an_uncounted_breaker_is_kept() -> None:
    simulation = World("a")
    simulation.board.stands = {"a": {"breaker": {"state": "OPEN"}}}
    simulation.views.clear()
    assert await simulation.round() == ["read"]
    simulation.views["a"] = CLOSED
    assert await simulation.round() == ["a"]


async def test_status_changed_by_another_client_is_restored_in_the_next_round() -> None:
    simulation = World("a", "b", timing=NEVER)
    await simulation.round()
    simulation.board.stands = {"b": {}}
    assert await simulation.round() == ["read", "a", "b"]


async def test_missing_status_board_is_reported_once_and_retried_later() -> None:
    simulation = World("a")
    simulation.board.refuses["*"] = ServiceStatusNotInstalledError("put one up")
    assert [await simulation.boards.round() for _ in range(2)] == [PACE.read_seconds] * 2
    assert simulation.reported == ["absent put one up"]
    simulation.board.refuses.clear()
    simulation.board.take_asked()
    assert await simulation.round() == ["read", "a"]
    simulation.board.refuses["*"] = ServiceStatusNotInstalledError("put one up")
    simulation.views["a"] = OPEN
    assert await simulation.boards.round() == PACE.read_seconds, "somebody has taken it away"
    assert simulation.reported == ["absent put one up"] * 2
    simulation.board.refuses.clear()
    simulation.board.stands, simulation.board.asked = {}, []
    assert await simulation.round() == ["read", "a"], "whoever put up another, nothing stands there"


async def test_unavailable_status_board_is_reported_once_and_retried_with_backoff() -> None:
    simulation = World("a")
    simulation.board.refuses["*"] = FORBIDDEN
    assert [await simulation.boards.round() for _ in range(4)] == [1, 2, 4, 4]
    simulation.board.refuses["*"] = ServiceStatusError("busy", retry_after_seconds=30)
    assert await simulation.boards.round() == 30
    simulation.board.refuses.clear()
    assert await simulation.boards.round() == PACE.round_seconds
    assert simulation.reported == [f"{FORBIDDEN}", f"over {FORBIDDEN}", "busy", "over busy"]
    simulation.board.refuses["a"], simulation.views["a"] = FORBIDDEN, OPEN
    assert await simulation.boards.round() == 1, "the pauses begin anew"


async def test_error_that_ends_in_a_missing_board_is_not_reported_as_resolved() -> None:
    simulation = World("a")
    for error in (
        ServiceStatusNotInstalledError("put one up"),
        FORBIDDEN,
        ServiceStatusNotInstalledError("put one up"),
        ServiceStatusNotInstalledError("put one up"),
    ):
        simulation.board.refuses["*"] = error
        await simulation.boards.round()
    assert simulation.reported == ["absent put one up", f"{FORBIDDEN}", "absent put one up"]


async def test_rejected_status_delays_no_other_service() -> None:
    simulation = World("a", "b", "c")
    simulation.board.refuses["a"] = FORBIDDEN
    assert await simulation.round() == ["read", "a"]
    assert await simulation.round() == ["b", "c"]
    assert await simulation.round() == ["a"]
    simulation.board.refuses.clear()
    assert await simulation.round() == ["a"]


async def test_writer_runs_until_cancelled() -> None:
    simulation = World("a", timing=ServiceStatusTiming(round_seconds=0))
    keeping = asyncio.create_task(simulation.boards.run())
    await until(lambda: "a" in simulation.board.stands)
    simulation.views["a"] = OPEN
    await until(lambda: simulation.board.stands["a"] == simulation.status("a"))
    keeping.cancel()
