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
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status import render_server_status

SERVICES = """\
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
"""
LOADED = policy_of(SERVICES)
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


ARM = "        {name: arm, weight: 10, nodeSelector: {kind: arm}},\n"
WITHOUT_ARM = policy_of(SERVICES.replace(ARM, ""))
WITHOUT_SHARES = policy_of("- {name: web, match: {namespaces: [shop]}}\n")


def render_canary(stable: LoadedPolicy, **views: BreakerView) -> dict[str, Any]:
    """Return the status document of a canary whose candidate is the policy with all variants."""
    snapshots = {f"web/{name}": ServiceSnapshot(NOW_US, breaker=view) for name, view in views.items()}
    plans, candidate = CompiledPolicy(stable).plans, CompiledPolicy(LOADED).services
    return render_server_status(snapshot(policy=stable, plans=plans, candidate=candidate, snapshots=snapshots))


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


def test_a_variant_of_the_candidate_alone_is_shown_as_such() -> None:
    document = render_canary(WITHOUT_ARM, spot=CLOSED, arm=OPEN)
    variants = document["services"][0]["shares"]["variants"]
    assert [(variant["name"], variant["ofCandidate"], variant["hasBreaker"]) for variant in variants] == [
        ("spot", False, True),
        ("on-demand", False, False),
        ("arm", True, True),
    ]
    lines = click.unstyle("\n".join(format_status(document))).splitlines()
    assert "web: shares the first 2 on-demand, then spot 80 : on-demand 10" in lines
    assert any(line.startswith("web, variant arm of the candidate: OPEN since") for line in lines)


def test_a_service_that_the_candidate_alone_divides_has_its_variants() -> None:
    document = render_canary(WITHOUT_SHARES, spot=OPEN, arm=CLOSED)
    shares = document["services"][0]["shares"]
    assert shares["base"] is None, "it is the candidate's"
    assert [variant["name"] for variant in shares["variants"] if variant["ofCandidate"]] == ["spot", "arm", "on-demand"]
    lines = click.unstyle("\n".join(format_status(document))).splitlines()
    assert "web: shares of the candidate alone" in lines


def test_the_last_variant_has_a_breaker_if_it_is_not_the_last_of_the_candidate() -> None:
    def divide(*names: str) -> LoadedPolicy:
        listed = ", ".join(f"{{name: {name}, weight: 1, nodeSelector: {{kind: {name}}}}}" for name in names)
        return policy_of(
            f"- {{name: web, match: {{namespaces: [a]}}, placement: {{shares: {{variants: [{listed}]}}}}}}\n"
        )

    stable, candidate = divide("spot", "on-demand"), CompiledPolicy(divide("on-demand", "spot"))
    snapshots = {"web/on-demand": ServiceSnapshot(NOW_US, breaker=OPEN)}
    status = snapshot(policy=stable, candidate=candidate.services, snapshots=snapshots)
    last = render_server_status(status)["services"][0]["shares"]["variants"][-1]
    assert (last["name"], last["ofCandidate"], last["hasBreaker"]) == ("on-demand", False, True)
    assert last["breaker"]["state"] == "OPEN"
