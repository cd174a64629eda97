"""States of the overrides: what is in force between two ends of entries, and what follows."""

from dataclasses import dataclass, field

from webhook.core.document.yaml.problems import Problem
from webhook.core.overrides import LiveOverrides
from webhook.core.overrides_document.loading import OverridesDocument


@dataclass(frozen=True, slots=True)
class OverridesState:
    """The overrides until the next end of an entry."""

    document: OverridesDocument = field(default_factory=OverridesDocument)
    """The document in force."""
    rejected: OverridesDocument | None = None
    """A newer document that cannot be used yet: two of its live entries set the same thing until one of them ends."""
    clashes: tuple[Problem, ...] = ()
    """The problems of `rejected`."""
    live: LiveOverrides = field(default_factory=LiveOverrides)
    ends_us: int | None = None
    """The next end of an entry, of one that is not in force yet too; None without one."""

    def at(self, now_us: int) -> "OverridesState":
        """Return the state at a later time."""
        return self.with_newest(self.rejected, now_us)

    def with_newest(self, newest: OverridesDocument | None, now_us: int) -> "OverridesState":
        """Return the state with a newer document; None: the document in force is the newest valid one."""
        clashes = () if newest is None else newest.clashes(now_us)
        document, rejected = (self.document, newest) if newest is None or clashes else (newest, None)
        entries = document.live(now_us)
        # The same object while nothing changes: policies are compiled for it.
        live = self.live if entries == self.live.entries else LiveOverrides(entries)
        ends = [one.next_end_us(now_us) for one in (document, rejected) if one is not None]
        ends_us = min((end for end in ends if end is not None), default=None)
        return OverridesState(document, rejected, clashes, live, ends_us)
