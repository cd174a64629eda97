"""Pods and policies made up for property tests, as JSON; `tests.core.strategies` is the door."""
