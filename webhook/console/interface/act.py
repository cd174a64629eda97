"""Acts: what changes something from the console, each with a form, the equal command line, and a confirmation."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from webhook.console.interface.page import PageRequest
from webhook.core.reporting.rollout_reports import ChangeDocument
from webhook.ports import OverridesStore

Form = Mapping[str, str]
Arguments = tuple[str, ...]


class AskedPod(NamedTuple):
    """A Pod that waits, as the cluster has it now."""

    service: str
    uid: str


class RolloutHand(Protocol):
    """A person's hand on the rollout of a policy. UserError: refused, or a right is missing."""

    async def promote(self) -> Any: ...

    async def pause(self, reason: str) -> Any: ...

    async def retry(self) -> Any: ...

    async def roll_back(self, revision: str | None, reason: str) -> Any: ...


class ClusterHands(Protocol):
    """What acts change in the cluster beside overrides."""

    async def find_waiting(self, namespace: str, name: str) -> AskedPod:
        """Return a Pod that waits; UserError: it does not, or it cannot be read."""
        ...

    async def drop_waiting(self, namespace: str, name: str, reason: str) -> tuple[AskedPod, str]:
        """Delete a Pod that waits; return it, and why the reason is not recorded, "" if it is."""
        ...

    async def change_rollout(
        self, command: str, act: Callable[[RolloutHand], Awaitable[Any]]
    ) -> tuple[ChangeDocument, str]:
        """Carry out a command, in the past tense for people; return what it has changed, and a warning or ""."""
        ...


@dataclass(frozen=True, slots=True)
class Hands:
    """Where acts write, with the rights of the user of this console; and the options that lead commands there."""

    open_overrides: Callable[[], AbstractAsyncContextManager[OverridesStore]]
    cluster: ClusterHands | None = None
    cluster_arguments: Arguments = ()
    file_arguments: Arguments = ()
    """Of a file of overrides; () if the cluster has them."""
    server_arguments: Arguments = ()


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form. With `choices` one of them is selected."""

    name: str
    label: str
    default: str = ""
    choices: tuple[str, ...] = ()
    hint: str = ""
    is_required: bool = True


REASON = FormField("reason", "Reason", hint="An incident or a ticket: it is recorded with your name.")
DURATION = FormField("for", "For", "10m", hint="Such as 10m or 1h30m. It ends by itself.")


@dataclass(frozen=True, slots=True)
class ActPlan:
    """What is shown before an act is confirmed: its effect in a sentence, and the equal command line.

    The options of the place where it acts are added to the command.
    """

    effect: str
    command: Arguments


def _list_no_arguments(hands: Hands) -> Arguments | None:  # noqa: ARG001  the default
    return ()


@dataclass(frozen=True, slots=True)
class ConsoleAct:
    """One act. Its form is at `path`; a UserError of any step is shown above it."""

    name: str
    path: str
    """As aiohttp's router takes it, such as `/service/{name}/override`."""
    title: str
    """With parts of the path in braces."""
    fields: tuple[FormField, ...]
    plan: Callable[[PageRequest, Form], Awaitable[ActPlan]]
    """Checks the form, and changes nothing."""
    perform: Callable[[Hands, PageRequest, Form], Awaitable[str]]
    """Does it, and returns in a sentence what happened."""
    back: str = "/"
    """Path of the page that leads here and that follows, with parts of the path in braces."""
    link: str = ""
    """Text of the link on that page; "": it has none of itself."""
    list_arguments: Callable[[Hands], Arguments | None] = _list_no_arguments
    """Returns the options that lead the command where the console acts; None: this console cannot do it."""
