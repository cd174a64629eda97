"""Composition of the policy in force and its overrides."""
