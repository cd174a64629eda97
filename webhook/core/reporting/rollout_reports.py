"""Documents of `podgate policy`: the history of policies, their rollout, and what a command has changed."""

from msgspec import Struct

from webhook.core.rollout.commands import describe_intervention, describe_rejection
from webhook.core.rollout.state import InForce, RolloutState

IN_FORCE, CANDIDATE, WISHED = "in force", "candidate", "wished"
WAS_IN_FORCE, TAKEN_BACK = "was in force", "taken back"


class RevisionEntry(Struct, frozen=True, rename="camel"):
    """One policy. `number` is 0 and `created_at` "" if its document is not kept; `roles`: what it is or was."""

    number: int
    hash: str
    created_at: str
    roles: tuple[str, ...] = ()
    reason: str = ""
    """Why it was taken back, or is pinned."""


class Follower(Struct, frozen=True):
    """One server, and the policy that it has in force; `error`: why that is not known."""

    server: str
    hash: str = ""
    error: str = ""


class Followers(Struct, frozen=True):
    """The servers that were asked. `unseen`: why others could not be found, "" if all were."""

    servers: tuple[Follower, ...] = ()
    unseen: str = ""

    def find_behind(self, policy_hash: str) -> tuple[Follower, ...]:
        """Return the servers that have another policy in force, or did not say."""
        return tuple(server for server in self.servers if server.hash != policy_hash)


class ChangeDocument(Struct, frozen=True, rename="camel"):
    """A command's change: what is in force now, and what is left to do in Git."""

    command: str
    dry_run: bool
    in_force: str
    candidate: str
    wished: str
    revert_in_git: str
    """The wished policy that should be reverted in Git, "" if there is nothing to revert."""
    next_command: str
    """Prints the document that Git should have, "" if there is nothing to revert."""
    state: RolloutState
    servers: tuple[Follower, ...] = ()
    unseen: str = ""


class HistorySource(Struct, frozen=True):
    """What the history is made of.

    `kept`: number, hash and time of each revision, and whether it was in force, the newest first.
    """

    kept: tuple[tuple[int, str, str, bool], ...]
    wished: str
    in_force: InForce
    state: RolloutState | None


def list_history(source: HistorySource) -> tuple[RevisionEntry, ...]:
    """Return what is kept, after what is wished or in force and not kept."""
    known = {policy_hash for _, policy_hash, _, _ in source.kept}
    others = dict.fromkeys((source.wished, source.in_force.candidate, source.in_force.stable))
    missing = [(0, policy_hash, "", False) for policy_hash in others if policy_hash and policy_hash not in known]
    return tuple(_build_entry(source, found) for found in (*missing, *source.kept))


def _build_entry(source: HistorySource, found: tuple[int, str, str, bool]) -> RevisionEntry:
    state, (number, policy_hash, created_at, was_in_force) = source.state, found
    rejection = None if state is None else state.find_rejection(policy_hash)
    has_role = {
        IN_FORCE: policy_hash == source.in_force.stable,
        CANDIDATE: policy_hash == source.in_force.candidate,
        WISHED: policy_hash == source.wished,
        WAS_IN_FORCE: was_in_force and policy_hash != source.in_force.stable,
        TAKEN_BACK: rejection is not None,
    }
    reason = "" if rejection is None else describe_rejection(rejection)
    if state is not None and state.pinned is not None and policy_hash == source.in_force.stable:
        reason = f"pinned: {describe_intervention(state.pinned)}"
    return RevisionEntry(number, policy_hash, created_at, tuple(role for role, has in has_role.items() if has), reason)
