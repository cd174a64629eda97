"""The targets, a module each: `check(data)` raises AssertionError, or lets an undocumented exception pass."""
