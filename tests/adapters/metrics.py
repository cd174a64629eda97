"""Helpers of the `metrics` tests that other tests use, too."""

import pytest

from tests.harness.records import (
    policy,
)
from webhook.adapters.metrics import Metrics
from webhook.authentication.reasons import REASONS


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics("0.1.0", refusal_reasons=REASONS)
    metrics.on_policy_loaded(policy("payment-api", "ledger"))
    return metrics


def read_samples(metrics: Metrics) -> dict[str, float]:
    """Read Podgate's own part of the scrape line by line: the text before the value is the key."""
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("podgate_")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
