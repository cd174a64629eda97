"""Split: the variant of each slot of a workload. It depends on the slot's number alone, so that it never changes."""

from functools import cached_property
from math import gcd

from msgspec import Struct

from webhook.core.policy_fields import Shares


class Split(Struct, frozen=True, dict=True):
    """The base, whose slots come first, and the weights of the variants in the order of the policy.

    `base_variant` is an index into `names`; it means nothing where `base_pods` is 0.
    """

    names: tuple[str, ...]
    weights: tuple[int, ...]
    base_variant: int = 0
    base_pods: int = 0

    @classmethod
    def from_shares(cls, shares: Shares) -> "Split":
        names = tuple(variant.name for variant in shares.variants)
        weights = tuple(variant.weight or 0 for variant in shares.variants)
        if shares.base is None:
            return cls(names, weights)
        return cls(names, weights, names.index(shares.base.variant), shares.base.pods)

    def find_variant(self, slot: int) -> int:
        """Return the index of the variant of a slot; slots are numbered from 1."""
        if slot <= self.base_pods:
            return self.base_variant
        return self._cycle[(slot - self.base_pods - 1) % len(self._cycle)]

    @cached_property
    def _cycle(self) -> tuple[int, ...]:
        """The variants of as many slots as give each variant exactly its share; then they repeat.

        Each slot goes to the variant that lacks most of its share so far; the first of the list wins a tie.
        """
        total = sum(self.weights)
        length = total // gcd(*self.weights)
        given, cycle = [0] * len(self.weights), []
        for slot in range(1, length + 1):
            lacking = [weight * slot - total * has for weight, has in zip(self.weights, given, strict=True)]
            chosen = lacking.index(max(lacking))
            given[chosen] += 1
            cycle.append(chosen)
        return tuple(cycle)

    def count_by_variant(self, slots: int, before: int = 0) -> dict[str, int]:
        """Return how many of `slots` slots after the first `before` each variant has, in the order of the policy."""
        first, last = (self._count_first(count) for count in (before, before + slots))
        return {name: last[index] - first[index] for index, name in enumerate(self.names)}

    def _count_first(self, slots: int) -> list[int]:
        """Return how many of the first `slots` slots each variant has."""
        rounds, rest = divmod(max(slots - self.base_pods, 0), len(self._cycle))
        counts = [
            rounds * self._cycle.count(index) + self._cycle[:rest].count(index) for index in range(len(self.names))
        ]
        counts[self.base_variant] += min(slots, self.base_pods)
        return counts

    def describe(self, slots: int, before: int = 0) -> str:
        """Return the split of a workload of `slots` Pods: `slots 1-2 on-demand, 3-10: spot x6, on-demand x2`.

        `before`: slots that come before those of its Pods, as of a StatefulSet that does not count from 0.
        """
        last = before + slots
        base = max(before, min(self.base_pods, last))
        parts = [f"slots {_format_range(before + 1, base)} {self.names[self.base_variant]}"] if base > before else []
        if last > base:
            of_rest = self.count_by_variant(last - base, base)
            counted = ", ".join(f"{name} x{count}" for name, count in of_rest.items() if count)
            parts.append(f"{'' if parts else 'slots '}{_format_range(base + 1, last)}: {counted}")
        return ", ".join(parts) or "no slots"


def _format_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
