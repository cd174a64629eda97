"""All sections of checks, in the order of the output.

To add a check, write a function that yields its findings, register it with its section's `check`, and write its entry.
"""

from collections.abc import Iterator

from webhook.core.checks import (
    calls,
    certificates,
    controller,
    other_webhooks,
    policy,
    replicas,
    scheduling,
    servers,
    services,
    store,
    webhooks,
)
from webhook.core.checks.check import CheckOutcome, Section, run_check
from webhook.core.checks.facts import ClusterFacts

SECTIONS = (
    calls.SECTION,
    webhooks.SECTION,
    other_webhooks.SECTION,
    servers.SECTION,
    replicas.SECTION,
    store.SECTION,
    certificates.SECTION,
    policy.SECTION,
    services.SECTION,
    scheduling.SECTION,
    controller.SECTION,
)
"""The most important first."""


def judge_facts(facts: ClusterFacts) -> Iterator[tuple[Section, tuple[CheckOutcome, ...]]]:
    """Yield the outcomes of all checks by section."""
    for section in SECTIONS:
        yield section, tuple(run_check(check, facts) for check in section.checks)
