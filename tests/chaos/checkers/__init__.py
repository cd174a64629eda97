"""Checkers of a history: facts in, violations out. Each module judges one subject; `checking` has them all."""

from tests.chaos.checkers.checking import CHECKERS, check, judge
from tests.chaos.checkers.judging import Judge, Violation

__all__ = ["CHECKERS", "Judge", "Violation", "check", "judge"]
