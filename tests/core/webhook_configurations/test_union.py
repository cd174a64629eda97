"""Webhook configurations of two policies: a call is made wherever one of both would have it made."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.webhook_configurations.configurations import policy_of
from tests.core.webhook_configurations.live import HASH
from webhook.core.policy.model import Exemptions, LoadedPolicy
from webhook.core.policy_fields import CustomWorkload
from webhook.core.webhook_configurations import render_either_webhooks
from webhook.core.webhook_configurations.live import render_wanted_webhooks
from webhook.core.webhook_configurations.union import unite_policies

OTHER = "b" * 16
SHOP = {"match": {"namespaces": ["shop"]}}


def load(*services: dict[str, Any], policy_hash: str = HASH, **fields: Any) -> LoadedPolicy:
    return LoadedPolicy(policy_of(*services, **fields), policy_hash)


def test_without_a_candidate_the_policy_in_force_is_rendered() -> None:
    stable = load(SHOP)
    assert render_either_webhooks(stable, None, all_calls=False) == render_wanted_webhooks(stable, all_calls=False)


def test_policies_that_need_the_same_calls_leave_them_as_they_are() -> None:
    stable = load({**SHOP, "placement": {"required": {"disk": "hdd"}}})
    candidate = load({**SHOP, "placement": {"required": {"disk": "ssd"}}}, policy_hash=OTHER)
    assert render_either_webhooks(stable, candidate, all_calls=False) == render_wanted_webhooks(stable, all_calls=False)


@pytest.mark.parametrize("first", [True, False])
def test_pods_of_a_service_of_either_policy_are_called_for(*, first: bool) -> None:
    one = load(SHOP)
    other = load({"match": {"namespaces": ["shop", "bank"]}, "failureMode": "Closed"}, policy_hash=OTHER)
    stable, candidate = (one, other) if first else (other, one)
    rendered = str(render_either_webhooks(stable, candidate, all_calls=False))
    assert "'bank'" in rendered
    assert "validate-closed" in rendered
    assert "may-be-refused" not in rendered


def test_only_what_both_exempt_is_exempt() -> None:
    one = Exemptions(("kube-*", "logs", "dev-a"), ("root", "joe"), ("gvisor",), daemon_sets=True)
    other = Exemptions(("kube-a", "logs", "dev-b"), ("root",), (), daemon_sets=False)
    stable, candidate = policy_of(SHOP), policy_of(SHOP)
    both = unite_policies(replace(stable, exemptions=one), replace(candidate, exemptions=other))
    assert both.exemptions == Exemptions(("logs", "kube-a"), ("root",), (), daemon_sets=False)


def test_kinds_of_either_policy_are_called_for() -> None:
    train = CustomWorkload("example.com", "Train", ("spec.template",))
    other = CustomWorkload("example.com", "Other", ("spec.template",))
    stable, candidate = (replace(policy_of(SHOP), workloads=(train, *more)) for more in ((), (other,)))
    assert unite_policies(stable, candidate).workloads == (train, other)
    assert unite_policies(candidate, stable).workloads == (train, other)
