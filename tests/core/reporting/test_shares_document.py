"""Shares in the status document and on its page: the split, and the breaker of each variant."""

from typing import Any

import click
import pytest
from msgspec.structs import replace

from tests.core.reporting.status import NOW_US, snapshot
from tests.core.reviewing import policy_of
from webhook.commands.pages.status_page import format_status
from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status import render_server_status

LOADED = policy_of("""\
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      base: {variant: on-demand, pods: 2}
      probes: 3
      variants: [
        {name: spot, weight: 80, nodeSelector: {kind: spot}},
        {name: arm, weight: 10, nodeSelector: {kind: arm}},
        {name: on-demand, weight: 10, nodeSelector: {kind: on-demand}}]
- name: tried
  match: {namespaces: [tried]}
  modes: {placement: Audit}
  placement: {shares: {variants: [
    {name: spot, weight: 1, nodeSelector: {kind: spot}},
    {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}]}}
""")
OPEN = BreakerView(
    State.OPEN,
    4,
    NOW_US - 60_000_000,
    NOW_US + 300_500_000,
    "unschedulable: no node for 300s, 3 Pods",
    tripped_at_us=NOW_US - 60_000_000,
    tripped_by="unschedulable: no node for 300s, 3 Pods",
)
CLOSED = BreakerView(State.CLOSED, 0, 0)


def render(**views: BreakerView) -> dict[str, Any]:
    snapshots = {f"web/{name}": ServiceSnapshot(NOW_US, breaker=view) for name, view in views.items()}
    snapshots["web"] = ServiceSnapshot(NOW_US)
    status = snapshot(policy=LOADED, plans=CompiledPolicy(LOADED).plans, snapshots=snapshots)
    return render_server_status(status)


def render_lines(**views: BreakerView) -> list[str]:
    lines = click.unstyle("\n".join(format_status(render(**views)))).splitlines()
    return [line for line in lines if line.startswith("web")]


def test_the_document_has_weights_base_and_breakers() -> None:
    web, tried = render(spot=OPEN, arm=CLOSED)["services"]
    assert tried["shares"] is None, "shares act in Enforce only"
    shares = web["shares"]
    assert shares["base"] == {"variant": "on-demand", "pods": 2}
    found = {variant.pop("name"): variant for variant in shares["variants"]}
    assert [(name, variant["weight"], variant["hasBreaker"]) for name, variant in found.items()] == [
        ("spot", 80, True),
        ("arm", 10, True),
        ("on-demand", 10, False),
    ]
    assert found["on-demand"]["breaker"] is None
    assert found["arm"]["breaker"]["state"] == "CLOSED"
    spot = found["spot"]["breaker"]
    assert (spot["state"], spot["reason"], spot["openRemainingSeconds"], spot["probes"]["needed"]) == (
        "OPEN",
        "unschedulable: no node for 300s, 3 Pods",
        301,
        3,
    )
    assert web["breaker"] is None, "a variant's breaker is not the service's"


def test_a_variant_that_could_not_be_read_is_unknown() -> None:
    web, _ = render(arm=CLOSED)["services"]
    spot = web["shares"]["variants"][0]
    assert (spot["hasBreaker"], spot["breaker"]) == (True, None)


def test_the_page_shows_the_split_and_what_is_not_closed() -> None:
    assert "web: shares the first 2 on-demand, then spot 80 : arm 10 : on-demand 10" in render_lines(
        spot=CLOSED, arm=CLOSED
    )
    lines = render_lines(spot=OPEN)
    assert (
        "web, variant spot: OPEN since 2027-01-15T07:59:00.000Z until 2027-01-15T08:05:00.500Z (generation 4):"
        " unschedulable: no node for 300s, 3 Pods (5m1s left)"
    ) in lines
    assert "web, variant arm: breaker unknown" in lines


@pytest.mark.parametrize("state", [State.FORCED_OPEN, State.FORCED_CLOSED])
def test_the_page_shows_forced_variants(state: State) -> None:
    forced = replace(OPEN, state=state, reason="INC-1")
    assert any(line.startswith(f"web, variant spot: {state} since") for line in render_lines(spot=forced, arm=CLOSED))


def test_the_page_of_an_older_server_has_no_shares() -> None:
    document = render(spot=CLOSED)
    for service in document["services"]:
        del service["shares"]
    assert not [line for line in format_status(document) if "shares" in line]
