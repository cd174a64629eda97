"""Condition: a state such as a failure, reported once when it is entered and once when it is left."""

from collections.abc import Callable
from typing import Generic, TypeVar

_Reason = TypeVar("_Reason")


class Condition(Generic[_Reason]):
    """Holds the reason of the condition, None while it does not hold.

    `on_entered` receives the reason, and `on_left` the reason that was reported before.
    Entering again for the same reason reports nothing. Another reason calls `on_changed(former, new)`; the default
    calls `on_left(former)`, then `on_entered(new)`.
    `key` maps reasons that count as the same to equal values: an error to its type, for example.
    """

    def __init__(
        self,
        on_entered: Callable[[_Reason], None],
        on_left: Callable[[_Reason], None],
        *,
        on_changed: Callable[[_Reason, _Reason], None] | None = None,
        key: Callable[[_Reason], object] = lambda reason: reason,
    ) -> None:
        self._on_entered = on_entered
        self._on_left = on_left
        self._on_changed = on_changed or self._leave_and_enter
        self._key = key
        self.reason: _Reason | None = None

    def enter(self, reason: _Reason) -> None:
        """Set the condition."""
        former = self.reason
        if former is None:
            self.reason = reason
            self._on_entered(reason)
        elif self._key(former) != self._key(reason):
            self.reason = reason
            self._on_changed(former, reason)

    def leave(self) -> None:
        """Clear the condition."""
        former, self.reason = self.reason, None
        if former is not None:
            self._on_left(former)

    def _leave_and_enter(self, former: _Reason, new: _Reason) -> None:
        self._on_left(former)
        self._on_entered(new)
