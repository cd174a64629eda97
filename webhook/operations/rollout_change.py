"""Change of a policy's rollout by a person: written, then followed by the servers for a bounded time."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.reporting.rollout_reports import ChangeDocument, Followers
from webhook.core.rollout.state import decide_in_force
from webhook.operations.rollout_editor import RolloutEditor, StateChange
from webhook.operations.rollout_followers import await_followers
from webhook.operations.stored_policies import open_policies
from webhook.support.kubeconfig import Kubeconfig

Act = Callable[[RolloutEditor], Awaitable[StateChange]]


@dataclass(frozen=True, slots=True)
class RolloutPlace:
    """The cluster, the servers that are to follow (without any, its ready Pods), and for how long they are asked."""

    kubeconfig: Kubeconfig
    servers: tuple[str, ...] = ()
    wait_seconds: float = 5.0


async def change_rollout(
    command: str, act: Act, place: RolloutPlace, *, dry_run: bool = False
) -> tuple[ChangeDocument, str]:
    """Carry out a command and return what it has changed, and why the ConfigMap's policy cannot be used, "" if it can.

    `command` says in the past tense what was done. UserError: it is refused, or a right is missing.
    """
    async with open_policies(place.kubeconfig, dry_run=dry_run) as policies:
        written = await act(RolloutEditor(policies, _read_now, dry_run=dry_run))
    facts, state = written.facts, written.state
    wished = facts.wished.hash
    found = decide_in_force(wished, state)
    followers = (
        Followers()
        if dry_run
        else await await_followers(place.kubeconfig, place.servers, found.stable, place.wait_seconds)
    )
    is_held = state.pinned is not None or state.find_rejection(wished) is not None
    bad = wished if is_held and wished not in {found.stable, found.candidate} else ""
    document = ChangeDocument(
        command=command,
        dry_run=dry_run,
        in_force=found.stable,
        candidate=found.candidate,
        wished=wished,
        revert_in_git=bad,
        next_command=f"podgate policy history {found.stable}" if bad else "",
        state=state,
        servers=followers.servers,
        unseen=followers.unseen,
    )
    return document, facts.wished.obstacle.splitlines()[0] if facts.wished.obstacle else ""


def _read_now() -> str:
    return format_rfc3339(time.time_ns() // 1000)
