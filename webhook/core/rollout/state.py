"""State of the policy's rollout: one JSON document that the leader and commands write, and all replicas follow.

The ConfigMap that people own says which policy is wished. This state says which is in force. Policies are named by
their hash; their documents are kept as revisions.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.breaker import BreakerOwner
from webhook.core.json_depth import UNREADABLE_JSON

REJECTED_MAX = 50
"""Rejected policies that are remembered, the newest ones."""
_HASH_DIGITS = 16


class Phase(StrEnum):
    """How far a candidate has come."""

    STABLE = "Stable"
    """There is no candidate."""
    SHADOW = "Shadow"
    CANARY = "Canary"


class Intervention(Struct, frozen=True, omit_defaults=True):
    """What a person did to a rollout. `by`: the user; `at`: RFC 3339."""

    reason: str
    by: str = ""
    at: str = ""


class Rejection(Struct, frozen=True, omit_defaults=True):
    """A policy that was taken back, and is not tried again. `figures`: the symptom, against its threshold."""

    hash: str
    reason: str
    figures: str = ""
    by: str = ""
    at: str = ""


class RolloutState(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Which policy is in force, and what its candidate waits for. Times are RFC 3339 in UTC.

    `governed`: the policy in force has a rollout of its own, so that a successor waits for the leader.
    `pinned`: the policy in force stays, whatever is wished, until the wish is the same or a person retries.
    `above_since`: since when each symptom of the candidate is above its threshold.
    """

    stable: str
    governed: bool = False
    phase: Phase = Phase.STABLE
    candidate: str = ""
    step: int = 0
    """Index of the canary's step."""
    since: str = ""
    """When the phase or the step began."""
    began: str = ""
    """When the candidate became one; "" if an older version wrote the state."""
    paused: Intervention | None = None
    pinned: Intervention | None = None
    rejected: tuple[Rejection, ...] = ()
    above_since: dict[str, str] = {}
    waits_for: str = ""
    """Why the rollout does not go on, for people; "" while it does."""

    def find_rejection(self, policy_hash: str) -> Rejection | None:
        return next((rejection for rejection in self.rejected if rejection.hash == policy_hash), None)

    def holds_back(self, wished: str) -> bool:
        """Return whether the wished policy is not in force because it was taken back, or another one is pinned."""
        is_held = self.pinned is not None or self.find_rejection(wished) is not None
        return is_held and wished != self.stable

    def drop_candidate(self) -> "RolloutState":
        """Return the state without a candidate. What a person has set stays."""
        return replace(self, phase=Phase.STABLE, candidate="", step=0, since="", began="", above_since={}, waits_for="")

    def reject(self, rejection: Rejection) -> "RolloutState":
        """Return the state with a policy rejected; it is no longer the candidate."""
        others = tuple(other for other in self.rejected if other.hash != rejection.hash)
        kept = (*others, rejection)[-REJECTED_MAX:]
        state = self.drop_candidate() if self.candidate == rejection.hash else self
        return replace(state, rejected=kept)


class RolloutView(Struct, frozen=True):
    """What one process has in force, by hash, and the state that it follows.

    `problem`: why what is in force is not what the state says; "" if it is. `added`: services that only the candidate
    of a canary has; `added_variants`: variants with a breaker that only it has.
    """

    stable: str = ""
    candidate: str = ""
    state: RolloutState | None = None
    problem: str = ""
    added: frozenset[str] = frozenset()
    added_variants: frozenset[BreakerOwner] = frozenset()

    @property
    def is_followed(self) -> bool:
        """Return whether there is a rollout to speak of."""
        return self.state is not None or bool(self.problem)


class InForce(Struct, frozen=True):
    """The hashes of the policy in force, and of the candidate that is judged beside it, "" for none."""

    stable: str
    candidate: str = ""


def decide_in_force(wished: str, state: RolloutState | None) -> InForce:
    """Return what is in force, from the hash of the wished policy; every replica comes to the same result.

    Without a state, and where nothing governs a change, the wished policy is in force at once. A replica that has
    started while there is no valid wish knows none, "": what it has in force is that of the others.
    """
    if state is None:
        return InForce(wished)
    if state.pinned is not None:
        return InForce(state.stable)
    if state.phase is not Phase.STABLE and state.candidate:
        return InForce(state.stable, state.candidate)
    if state.governed or not wished or state.find_rejection(wished) is not None:
        return InForce(state.stable)
    return InForce(wished)


class StateError(ValueError):
    """The text is no state of a rollout; the message names the field."""


_decoder = msgspec.json.Decoder(RolloutState)


def decode_state(text: str | bytes) -> RolloutState:
    """Return the state that `encode_state` wrote. StateError: it is none."""
    try:
        state = _decoder.decode(text)
    except UNREADABLE_JSON as error:
        raise StateError(str(error)) from None
    for name, found in (("stable", state.stable), ("candidate", state.candidate)):
        is_hash = len(found) == _HASH_DIGITS and not set(found) - set("0123456789abcdef")
        if not is_hash and (found or name == "stable"):
            raise StateError(f"$.{name}: {found!r}: not the hash of a policy, which has 16 hexadecimal digits")
    if state.phase is not Phase.STABLE and not state.candidate:
        raise StateError(f"$.candidate: missing, and $.phase is {state.phase}")
    return state


def encode_state(state: RolloutState) -> str:
    """Return the state as JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(state), indent=2).decode()
