"""Ring of aligned buckets for one trailing window, with exact sums per resource.

A bucket is 1/64 of the window wide, and 65 of them are live, so a charge leaves at an age in (W, W + W/64]. Hence the
ring holds at least the use of any trailing W, and nothing older than W * 65/64. Why: docs/design/windows.md.
"""

from collections.abc import Callable, Mapping

BUCKETS_LIVE = 65
_BEFORE = BUCKETS_LIVE - 1
"""The live buckets before the newest one."""
_BUCKET_US_PER_SECOND = 1_000_000 // 64


class Ring:
    """Amounts by bucket, oldest first, with running sums. Only `add`, `refund` and `forget` write.

    `now_us` must not decrease from call to call; the tag's clock ensures it.
    """

    __slots__ = ("_buckets", "_sums", "_width_us")

    def __init__(self, window_seconds: int) -> None:
        self._width_us = window_seconds * _BUCKET_US_PER_SECOND
        self._buckets: dict[int, dict[str, int]] = {}
        self._sums: dict[str, int] = {}

    def used(self, now_us: int) -> Mapping[str, int]:
        """Return what counts at `now_us`, by resource; a resource that was never counted is absent."""
        oldest, buckets = now_us // self._width_us - _BEFORE, self._buckets
        if not buckets or next(iter(buckets)) >= oldest:
            return self._sums
        sums: dict[str, int] = {}
        for number, amounts in buckets.items():
            for resource, amount in amounts.items() if number >= oldest else ():
                sums[resource] = sums.get(resource, 0) + amount
        return sums

    def add(self, now_us: int, amounts: Mapping[str, int], at_us: int) -> bool:
        """Count `amounts` as of `at_us`, now or before. If that has left the window, count nothing and return False."""
        number, sums = at_us // self._width_us, self._sums
        if number < (oldest := now_us // self._width_us - _BEFORE):
            return False
        bucket = self._buckets.get(number)
        if bucket is None:
            self._forget(oldest)
            is_newest = not self._buckets or number > next(reversed(self._buckets))
            bucket = self._buckets[number] = {}
            if not is_newest:
                self._buckets = dict(sorted(self._buckets.items()))
        for resource, amount in amounts.items():
            bucket[resource] = bucket.get(resource, 0) + amount
            sums[resource] = sums.get(resource, 0) + amount
        return True

    def _forget(self, oldest: int) -> None:
        """Drop the buckets that have left the window. Necessary only when a new bucket starts."""
        while self._buckets and (number := next(iter(self._buckets))) < oldest:
            for resource, amount in self._buckets.pop(number).items():
                self._sums[resource] -= amount

    def refund(self, now_us: int, charged_at_us: int, amounts: Mapping[str, int]) -> bool:
        """Refund amounts counted at `charged_at_us`; False if their bucket has left the window."""
        number = charged_at_us // self._width_us
        bucket = self._buckets.get(number)
        if bucket is None or number < self._oldest(now_us):
            return False
        for resource, amount in amounts.items():
            bucket[resource] -= amount
            self._sums[resource] -= amount
        return True

    def forget(self, now_us: int, until_us: int) -> tuple[int, bool]:
        """Clear the buckets up to that of a moment; return its end, and whether they held anything that counts."""
        oldest, newest, any_held = self._oldest(now_us), until_us // self._width_us, False
        for number, amounts in self._buckets.items():
            for resource, amount in amounts.items() if number <= newest else ():
                self._sums[resource] -= amount
                amounts[resource] = 0
                any_held |= amount > 0 and number >= oldest
        return (newest + 1) * self._width_us - 1, any_held

    def free_at_us(self, now_us: int, resource: str, hard: int, asked: int) -> int | None:
        """Return when `asked` fits if nothing else is charged: 0 if it fits now, None if it never can."""
        if asked > hard:
            return None
        excess = self.used(now_us).get(resource, 0) + asked - hard
        if excess <= 0:
            return 0
        oldest = self._oldest(now_us)
        for number, amounts in self._buckets.items():
            excess -= amounts.get(resource, 0) if number >= oldest else 0
            if excess <= 0:
                return (number + BUCKETS_LIVE) * self._width_us
        raise AssertionError("the buckets do not add up to the sums")

    def find_fit_us(self, now_us: int, fits: Callable[[Mapping[str, int]], bool]) -> int | None:
        """Return when `fits` first accepts what is left if nothing else is charged: 0 for now, None for never."""
        oldest, left = self._oldest(now_us), dict(self.used(now_us))
        if fits(left):
            return 0
        for number, amounts in self._buckets.items():
            if number >= oldest:
                for resource, amount in amounts.items():
                    left[resource] -= amount
                if fits(left):
                    return (number + BUCKETS_LIVE) * self._width_us
        return None

    def idle(self, now_us: int) -> bool:
        """Whether every bucket has left the window: such a ring may be dropped."""
        return not self._buckets or next(reversed(self._buckets)) < self._oldest(now_us)

    def _oldest(self, now_us: int) -> int:
        return now_us // self._width_us - _BEFORE
