"""Suggested limits of what was not used, or is forbidden by a limit of 0: they are kept."""

from collections.abc import Sequence

import pytest

from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy_fields import Quota, Window
from webhook.core.suggestion.limits import CounterUses, LimitSuggestion, build_windows, suggest_limits, suggest_pool
from webhook.core.suggestion.observed_use import ObservedUse

CPU, GPU = "requests.cpu", "requests.nvidia.com/gpu"
WINDOW = Window(Duration.parse("1m"), {"pods": Quantity.parse("9"), CPU: Quantity.parse("4"), GPU: Quantity.parse("0")})


def format_limits(limits: Sequence[LimitSuggestion]) -> dict[str, str]:
    [window] = build_windows(limits)
    return {resource: hard.text for resource, hard in window.hard.items()}


@pytest.mark.parametrize("measured", [True, False])
def test_limits_of_what_was_not_used_are_kept(*, measured: bool) -> None:
    uses = {(WINDOW.window.text, resource): ObservedUse(60, resource, 0, 0, 0, 0, ()) for resource in (CPU, GPU)}
    pods = {(WINDOW.window.text, "pods"): ObservedUse(60, "pods", 8, 0, 8, 9, ())}
    evidence = CounterUses({}, 86_400.0, measured={**pods, **(uses if measured else {})})
    of_service = format_limits(suggest_limits(Quota(windows=(WINDOW,)), evidence, 25))
    of_pool = format_limits(suggest_pool((WINDOW,), evidence, 25))
    assert of_service == of_pool == {"pods": "10", CPU: "4", GPU: "0"}
