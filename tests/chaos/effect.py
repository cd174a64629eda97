"""What a fault does to a laboratory, and what ends it."""

from collections.abc import Callable
from typing import NamedTuple

from tests.chaos.history import PlannedFault
from tests.chaos.lab import Lab


class Effect(NamedTuple):
    """`begin` may return what it has found, by name.

    `heal` may be called more than once, also after a `begin` that failed. None: the fault ends by itself.
    """

    begin: Callable[[], object]
    heal: Callable[[], object] | None = None


Build = Callable[[Lab, PlannedFault], Effect]
"""Looks up what the fault is about, and touches nothing."""
