"""Helpers of the `queue` tests that other tests use, too."""

from typing import Any

from webhook.core.admission.mutation import QUEUE_GATE


def is_gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == QUEUE_GATE for gate in pod["spec"].get("schedulingGates", ()))
