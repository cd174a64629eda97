"""Facts of a rollout as a command reads them once, and the names by which people call policies of the cluster."""

from pathlib import Path

from msgspec import Struct

from webhook.core.document.configmap import NAME, NAMESPACE
from webhook.core.rollout.state import InForce, RolloutState, decide_in_force
from webhook.errors import UserError
from webhook.ports import PolicyRevision

LIVE, WISHED, CANDIDATE = "live", "wished", "candidate"
ROLES = (LIVE, WISHED, CANDIDATE)
_NUMBER_DIGITS_MAX, _PREFIX_DIGITS_MIN, _HASH_DIGITS = 6, 4, 16
_HEX_DIGITS = frozenset("0123456789abcdef")
PLACE = f"configmap {NAMESPACE}/{NAME}"


def is_stored(name: str) -> bool:
    """Return whether a name means a policy in the cluster, since it can and there is no file of this name.

    A role, a revision, or the beginning of a hash can.
    """
    return (name in ROLES or _is_number(name) or _is_prefix(name)) and not Path(name).is_file()


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _NUMBER_DIGITS_MAX


def _is_prefix(name: str) -> bool:
    return _PREFIX_DIGITS_MIN <= len(name) <= _HASH_DIGITS and not set(name) - _HEX_DIGITS


class NoRolloutError(UserError):
    """The cluster has no state of a rollout."""


class WishedDocument(Struct, frozen=True):
    """The wished policy as servers see it: "" for `hash` if there is no valid document. `obstacle`: why."""

    hash: str
    raw: bytes = b""
    obstacle: str = ""


class RolloutFacts(Struct, frozen=True):
    """The rollout at one moment. The newest revision is the first."""

    state: RolloutState | None
    wished: WishedDocument
    revisions: tuple[PolicyRevision, ...]

    @property
    def in_force(self) -> InForce:
        return decide_in_force(self.wished.hash, self.state)

    def require_state(self) -> RolloutState:
        if self.state is not None:
            return self.state
        raise NoRolloutError(
            f"configmap {NAMESPACE}/podgate-policy-state: there is none: no leader has kept a history of policies here",
            "start a controller of this version, or a server with --store=memory, that reads the policy from the"
            f" cluster (without --policy FILE); until then change {PLACE} itself",
        )

    def find_number(self, policy_hash: str) -> int:
        """Return the number of a policy's revision, 0 if it is not kept."""
        return next((kept.number for kept in self.revisions if kept.hash == policy_hash), 0)

    def describe(self, policy_hash: str) -> str:
        """Return a policy for people: its hash, and its revision."""
        number = self.find_number(policy_hash)
        return f"{policy_hash} (revision {number})" if number else policy_hash

    def find_hash(self, name: str) -> str | None:
        """Return the hash that a revision, a hash or its beginning names; None if it is none of them. UserError."""
        if _is_number(name):
            for kept in self.revisions:
                if kept.number == int(name):
                    return kept.hash
        if not _is_prefix(name):
            return None
        known = dict.fromkeys(kept.hash for kept in self.revisions)
        known |= dict.fromkeys(filter(None, (self.wished.hash, self.in_force.stable, self.in_force.candidate)))
        found = [policy_hash for policy_hash in known if policy_hash.startswith(name)]
        if len(found) > 1:
            raise UserError(f"{name}: begins the hashes {', '.join(found)}", "write more digits")
        return found[0] if found else None

    def require_hash(self, name: str) -> str:
        """Return the hash that `name` names: a role, or as `find_hash`; UserError if there is none."""
        if name in ROLES:
            return self._find_role(name)
        found = self.find_hash(name)
        if found is None:
            listed = ", ".join(f"{kept.number} ({kept.hash})" for kept in self.revisions) or "none"
            raise UserError(f"{name}: no such revision: there are {listed}", "see podgate policy history")
        return found

    def _find_role(self, name: str) -> str:
        if name == CANDIDATE and not self.in_force.candidate:
            raise UserError("candidate: there is none now", "podgate policy candidate shows the rollout")
        found = {LIVE: self.in_force.stable, WISHED: self.wished.hash, CANDIDATE: self.in_force.candidate}[name]
        if not found or (name == WISHED and self.wished.obstacle):
            raise UserError(self.wished.obstacle, "" if self.wished.raw else "give the file of a policy")
        return found
