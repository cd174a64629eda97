"""Overrides of a variant's breaker: they force it, reset it and end apart from those of its service."""

from collections.abc import Mapping

import pytest

from tests.core.reviewing import policy_of
from webhook.core.breaker import Forcing, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import DocumentError
from webhook.core.overrides import Override, apply_overrides, list_breaker_resets, list_remarks
from webhook.core.overrides.editing import encode_document
from webhook.core.overrides.exceptions import compile_exceptions
from webhook.core.overrides.loading import load
from webhook.core.policy_fields import Mode

LOADED = policy_of("""\
- name: web
  match: {namespaces: [shop]}
  modes: {breaker: Warn}
  breaker: {quotaExceeded: {}}
  quota: {windows: [{window: 1m, hard: {pods: 5}}]}
  placement:
    shares: {variants: [
      {name: spot, weight: 8, nodeSelector: {kind: spot}},
      {name: arm, weight: 1, nodeSelector: {kind: arm}},
      {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}]}
- name: tried
  match: {namespaces: [tried]}
  modes: {placement: Audit}
  placement: {shares: {variants: [
    {name: spot, weight: 1, nodeSelector: {kind: spot}},
    {name: on-demand, weight: 1, nodeSelector: {kind: on-demand}}]}}
- name: plain
  match: {namespaces: [plain]}
""")
NOW_US = 1_796_094_000_000_000
END_US = NOW_US + 3_600_000_000
TERMS = "until: 2026-12-01T04:00:00Z, reason: INC-1"


def entries(*bodies: str) -> tuple[Override, ...]:
    return load("".join(f"- {{{body}, {TERMS}}}\n" for body in bodies).encode()).entries


def apply(*bodies: str) -> CompiledPolicy:
    return CompiledPolicy(apply_overrides(LOADED, by_service(entries(*bodies))))


def by_service(found: tuple[Override, ...]) -> Mapping[str, tuple[Override, ...]]:
    return {name: tuple(entry for entry in found if entry.service == name) for name in {each.service for each in found}}


def read_forcings(compiled: CompiledPolicy) -> dict[str, Forcing | None]:
    plans = compiled.list_breakers()
    return {plan.service: plan.breaker.forcing for plan in plans if plan.breaker is not None}


FORCED_OPEN = Forcing(State.FORCED_OPEN, END_US, "INC-1")
FORCED_CLOSED = Forcing(State.FORCED_CLOSED, END_US, "INC-1")


def test_a_variant_is_forced_and_neither_its_service_nor_others_are() -> None:
    compiled = apply("service: web, variant: spot, breaker: ForcedOpen", "service: web, breaker: ForcedClosed")
    assert read_forcings(compiled) == {"web": FORCED_CLOSED, "web/spot": FORCED_OPEN, "web/arm": None}


def test_a_forced_variant_changes_nothing_of_its_service() -> None:
    compiled = apply("service: web, variant: spot, breaker: ForcedOpen")
    assert compiled.services["web"].modes.breaker is Mode.WARN, "a forced service would be enforced"
    assert compiled.services["web"] == CompiledPolicy(LOADED).services["web"]
    assert compiled.overrides.get("web", "") == ""
    assert compiled.plans["web"].breaker == CompiledPolicy(LOADED).plans["web"].breaker


def test_automatic_forces_nothing() -> None:
    forcings = read_forcings(apply("service: web, variant: spot, breaker: Automatic"))
    assert set(forcings.values()) == {None}


def test_a_reset_is_of_the_variant() -> None:
    found = entries(
        "service: web, variant: spot, breaker: Automatic, resetAt: 2026-12-01T02:59:00Z",
        "service: web, breaker: Automatic, resetAt: 2026-12-01T02:58:00Z",
    )
    assert list_breaker_resets(found, NOW_US) == {
        "web/spot": NOW_US - 60_000_000,
        "web": NOW_US - 120_000_000,
    }
    assert list_breaker_resets(found, NOW_US - 90_000_000) == {"web": NOW_US - 120_000_000}, "and not before its time"


def test_entries_of_different_variants_do_not_clash() -> None:
    bodies = [f"service: web, {variant}breaker: ForcedOpen" for variant in ("", "variant: spot, ", "variant: arm, ")]
    text = "".join(f"- {{{body}, {TERMS}}}\n" for body in bodies)
    assert load(text.encode()).find_clashes(NOW_US) == ()
    [clash] = load((text + f"- {{{bodies[1]}, {TERMS}}}\n").encode()).find_clashes(NOW_US)
    assert "a second live entry for variant spot of web sets breaker, first in line 2" in str(clash)


def test_an_entry_is_written_as_it_was_read() -> None:
    found = entries("service: web, variant: spot, breaker: ForcedOpen")
    assert load(encode_document(found)).entries == found
    assert str(found[0]) == "variant: spot, breaker: ForcedOpen until 2026-12-01T04:00:00Z: INC-1"


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        ("service: web, variant: spot", ""),
        ("service: web, variant: gpu", "variant: gpu: no such variant; variants with a breaker: spot, arm"),
        (
            "service: web, variant: on-demand",
            "variant: on-demand: the last of the list, which nothing replaces; variants with a breaker: spot, arm",
        ),
        (
            "service: tried, variant: spot",
            "variant: spot: modes.placement is Audit, and shares act only in Enforce",
        ),
        ("service: plain, variant: spot", "variant: spot: the service has no placement.shares"),
    ],
)
def test_a_variant_without_a_breaker_is_told(body: str, remark: str) -> None:
    [entry] = entries(f"{body}, breaker: ForcedOpen")
    assert list_remarks(LOADED.policy, entry) == ((remark,) if remark else ())


def test_a_variant_that_the_candidate_of_a_canary_has_is_not_without_effect() -> None:
    [entry] = entries("service: plain, variant: spot, breaker: ForcedOpen")
    candidate = {"plain": CompiledPolicy(LOADED).services["web"]}
    assert list_remarks(LOADED.policy, entry, candidate) == ()
    assert list_remarks(LOADED.policy, entry, {"plain": CompiledPolicy(LOADED).services["tried"]}) != ()


def test_an_exception_divides_by_the_breakers_of_the_service() -> None:
    body = "service: web, workload: {namespace: shop, kind: Deployment, name: web}, quotaFactor: 2"
    compiled = apply("service: web, variant: spot, breaker: ForcedOpen")
    own = by_service(entries(body, "service: web, variant: spot, breaker: ForcedOpen"))
    services = {service.name: service for service in LOADED.policy.services}
    [exception] = compile_exceptions(services, compiled, own)
    assert exception.part.shares is compiled.shares["web"], "the plans that are ticked"
    with pytest.raises(DocumentError, match="for a part of the service's Pods"):
        entries(body.replace("quotaFactor: 2", "variant: spot, breaker: ForcedOpen"))
