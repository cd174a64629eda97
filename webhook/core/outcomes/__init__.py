"""Outcomes that reporters push: the report format, and sums of many reports."""
