"""Breakers as Redis has them: cached states, operations, and published transitions."""
