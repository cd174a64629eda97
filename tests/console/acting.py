"""Hands for tests, and an act that paints a service."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from webhook.adapters.overrides_file import FileOverridesStore
from webhook.console import application
from webhook.console.interface.act import REASON, ActPlan, AskedPod, ClusterHands, ConsoleAct, FormField, Hands
from webhook.console.interface.page import PageRequest
from webhook.core.reporting.rollout_reports import ChangeDocument
from webhook.core.rollout.state import RolloutState
from webhook.errors import UserError
from webhook.ports import OverridesStore

PATH = "/service/web/paint"
HASH = "0123456789abcdef"
FORM = {"colour": "red", "reason": "INC-1 <b>"}


@asynccontextmanager
async def no_store() -> AsyncIterator[OverridesStore]:
    yield cast("OverridesStore", None)


HANDS = Hands(no_store)


class Painter:
    """An act that is in no service: it keeps what was painted."""

    def __init__(self) -> None:
        self.painted: list[tuple[str, str]] = []

    async def plan(self, asked: PageRequest, form: Mapping[str, str]) -> ActPlan:
        if form["colour"] == "blue":
            raise UserError("no blue <i>is left", "take red")
        return ActPlan(f"paints {asked.path['name']} {form['colour']}", ("podgate", "paint", form["reason"]))

    async def perform(self, hands: Hands, asked: PageRequest, form: Mapping[str, str]) -> str:
        assert hands is HANDS
        self.painted.append((asked.path["name"], form["colour"]))
        return f"painted {form['colour']}"


def install_act(monkeypatch: pytest.MonkeyPatch, painter: Painter) -> None:
    """Let the console have this act only."""
    colours = FormField("colour", "Colour", "red", ("red", "blue"))
    act = ConsoleAct("paint", "/service/{name}/paint", "Paint {name}", (colours, REASON), painter.plan, painter.perform)
    monkeypatch.setattr(application, "list_acts", lambda: (act,))


class PreparedCluster:
    """Hands that keep what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def find_waiting(self, namespace: str, name: str) -> AskedPod:
        if name == "runs":
            raise UserError(f"pod {namespace}/{name}: does not wait", "see `podgate explain`")
        return AskedPod("web", "uid-1")

    async def drop_waiting(self, namespace: str, name: str, reason: str) -> tuple[AskedPod, str]:
        self.asked.append((namespace, name, reason))
        return AskedPod("web", "uid-1"), "no right"

    async def change_rollout(self, command: str, act: Callable[[Any], Awaitable[Any]]) -> tuple[ChangeDocument, str]:
        await act(self)
        found: dict[str, Any] = dict.fromkeys(("candidate", "revert_in_git", "next_command"), "")
        found |= {"in_force": HASH, "wished": HASH, "state": RolloutState(HASH)}
        return ChangeDocument(command, dry_run=False, **found), "it has mistakes"

    async def promote(self) -> None:
        self.asked.append(("promote",))

    async def retry(self) -> None:
        self.asked.append(("retry",))

    async def pause(self, reason: str) -> None:
        self.asked.append(("pause", reason))

    async def roll_back(self, revision: str | None, reason: str) -> None:
        self.asked.append(("rollback", str(revision), reason))


def make_hands(file: Path, cluster: ClusterHands | None = None) -> Hands:
    @asynccontextmanager
    async def open_overrides() -> AsyncIterator[FileOverridesStore]:
        yield FileOverridesStore(file)

    where = ("--overrides", str(file))
    return Hands(open_overrides, cluster, ("--context", "here"), where, ("--server", "http://s"))
