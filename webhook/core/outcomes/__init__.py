"""Outcomes pushed by reporters: report format, and sums of many reports."""
