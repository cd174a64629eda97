"""Strict YAML: a tree with line and column, and the problems found in it."""
