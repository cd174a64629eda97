"""States of a policy: compiled under overrides with the limits of a moment, and what follows at the next change."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from webhook.core.compiled_policy import CompiledException, CompiledPolicy, CompiledService


class PolicyState(NamedTuple):
    """A policy under overrides; `open_max`: breakerGuard's limit; `changed`: the services that they change.

    It has the limits of `at_us` until `until_us`; None without schedules.
    """

    open_max: int | None
    changed: Mapping[str, CompiledService]
    exceptions: Mapping[str, Sequence[CompiledException]]
    """By service."""
    compiled: CompiledPolicy
    at_us: int = 0
    until_us: int | None = None

    @property
    def states(self) -> "tuple[PolicyState, ...]":
        return (self,)

    def holds_at(self, now_us: int) -> bool:
        return self.until_us is None or self.at_us <= now_us < self.until_us


class ScheduledStates:
    """A policy with schedules under overrides: with the limits of now, and with those after the next change.

    If a further change comes before it is prepared, the last prepared limits hold until it is.
    """

    def __init__(self, current: PolicyState, read_now_us: Callable[[], int]) -> None:
        self.current = current
        self.coming: PolicyState | None = None
        self._read_now_us = read_now_us

    @property
    def compiled(self) -> CompiledPolicy:
        if self.coming is not None and self._read_now_us() >= self.coming.at_us:
            self.current, self.coming = self.coming, None
        return self.current.compiled

    @property
    def states(self) -> tuple[PolicyState, ...]:
        return (self.current,) if self.coming is None else (self.current, self.coming)
