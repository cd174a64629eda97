"""Unresolved labels: labels of a workload's Pods whose value is not known before the Pod exists."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct


class UnresolvedLabel(Struct, frozen=True, gc=False):
    """The values that a label may have. `sample` is its value in a simulated Pod.

    With `numbers` the value is `prefix` and one of these, and each of them occurs; else it matches `pattern`.
    """

    sample: str
    pattern: str = ""
    prefix: str = ""
    numbers: range | None = None

    def among(self, values: Sequence[str]) -> bool | None:
        """Return whether the value is one of `values`; None if that depends on the Pod."""
        if self.numbers is None:
            return None if any(re.fullmatch(self.pattern, value) for value in values) else False
        found = {number for value in values if (number := self._number(value)) in self.numbers}
        return (True if len(found) == len(self.numbers) else None) if found else False

    def _number(self, value: str) -> int | None:
        digits = value.removeprefix(self.prefix)
        is_one = value.startswith(self.prefix) and re.fullmatch(r"0|[1-9][0-9]{0,9}", digits)
        return int(digits) if is_one else None


UnresolvedLabels = Mapping[str, UnresolvedLabel]
RESOLVED: UnresolvedLabels = {}
