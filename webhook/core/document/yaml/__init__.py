"""Strict YAML: a tree that knows line and column, and the problems found in it."""
