"""Checks of an installation: pure judgements of facts, by section. Each has an entry in docs/runbook.md by its code."""

from webhook.core.checks.check import CheckOutcome, ClusterCheck, Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.judge import SECTIONS, judge_facts

__all__ = [
    "SECTIONS",
    "CheckOutcome",
    "ClusterCheck",
    "ClusterFacts",
    "Observation",
    "Section",
    "Severity",
    "judge_facts",
]
