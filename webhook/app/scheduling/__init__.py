"""Composition of the scheduler extender."""
