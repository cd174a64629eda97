"""Live webhook configurations: every difference from the policy is found, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import PROPERTY
from tests.core.webhook_configurations.configurations import policies
from tests.core.webhook_configurations.live import (
    CLIENTS,
    HASH,
    OF_ONE_SERVICE,
    SECRET,
    Live,
    build_stored_configurations,
    policy,
)
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.webhook_configurations import (
    NAMES,
    ClientConfig,
    ConfigurationName,
    find_outdated,
    leaves_out_no_call,
    render_configurations,
    render_wanted_webhooks,
)

__all__ = ["policy"]

clients = st.sampled_from(CLIENTS)


def list_differences(policy: Policy, live: Live) -> list[str]:
    wanted = render_wanted_webhooks(LoadedPolicy(policy, HASH), all_calls=leaves_out_no_call(live))
    return [str(outdated) for outdated in find_outdated(wanted, live)]


def write_outdated(policy: Policy, live: Live) -> Live:
    """Return the configurations after all that differ were written."""
    wanted = render_wanted_webhooks(LoadedPolicy(policy, HASH), all_calls=leaves_out_no_call(live))
    changed = {
        outdated.name: {**live[outdated.name], "webhooks": outdated.webhooks}
        for outdated in find_outdated(wanted, live)
    }
    return {**live, **changed}


def test_the_names_are_those_of_the_rendered_configurations() -> None:
    rendered = render_configurations(OF_ONE_SERVICE, CLIENTS[0])
    assert tuple(ConfigurationName(document["kind"], document["metadata"]["name"]) for document in rendered) == NAMES


@PROPERTY
@given(policies, clients, st.booleans())
def test_rendered_configurations_do_not_differ(policy: Policy, client: ClientConfig, all_calls: bool) -> None:  # noqa: FBT001  drawn
    assert list_differences(policy, build_stored_configurations(policy, client, all_calls=all_calls)) == []


@PROPERTY
@given(policies, policies, clients, st.booleans())
def test_written_configurations_are_the_rendered_ones_and_keep_the_target(
    before: Policy,
    policy: Policy,
    client: ClientConfig,
    all_calls: bool,  # noqa: FBT001  drawn
) -> None:
    live = write_outdated(policy, build_stored_configurations(before, client, all_calls=all_calls))
    assert list_differences(policy, live) == []
    rendered = build_stored_configurations(policy, client, all_calls=all_calls)
    for name in NAMES:
        targets = {webhook["name"]: webhook["clientConfig"] for webhook in live[name].get("webhooks", ())}
        assert targets == {webhook["name"]: webhook["clientConfig"] for webhook in rendered[name].get("webhooks", ())}


CHANGES = {
    "rules": [],
    "failurePolicy": "Fail",
    "sideEffects": "Some",
    "matchPolicy": "Exact",
    "reinvocationPolicy": "Never",
    "admissionReviewVersions": ["v1beta1"],
    "namespaceSelector": {"matchLabels": {"a": "b"}},
    "objectSelector": {"matchLabels": {"a": "b"}},
    "matchConditions": [{"name": "never", "expression": "false"}],
}


@pytest.fixture
def live() -> Live:
    return build_stored_configurations(OF_ONE_SERVICE, CLIENTS[1])


@pytest.mark.parametrize("field", CHANGES)
def test_each_changed_field_is_named(policy: Policy, live: Live, field: str) -> None:
    live[NAMES[0]]["webhooks"][0][field] = CHANGES[field]
    assert list_differences(policy, live) == [f"{NAMES[0]}: mutate.podgate.io differs in {field}"]
    assert list_differences(policy, write_outdated(policy, live)) == []


def test_each_rendered_field_is_compared_or_kept(policy: Policy) -> None:
    rendered = {
        field
        for configuration in render_configurations(policy, CLIENTS[1])
        for webhook in configuration["webhooks"]
        for field in webhook
    }
    assert rendered - CHANGES.keys() == {"name", "clientConfig", "timeoutSeconds"}


def test_the_path_is_compared_without_its_secret(policy: Policy) -> None:
    live = build_stored_configurations(policy, CLIENTS[2])
    assert SECRET in live[NAMES[0]]["webhooks"][0]["clientConfig"]["url"]
    live[NAMES[0]]["webhooks"][0]["clientConfig"]["url"] = f"https://10.0.0.1:8443/{SECRET}/validate"
    [difference] = list_differences(policy, live)
    assert difference == f"{NAMES[0]}: mutate.podgate.io differs in path of clientConfig"
    [repaired] = write_outdated(policy, live)[NAMES[0]]["webhooks"]
    assert repaired["clientConfig"]["url"] == f"https://10.0.0.1:8443/{SECRET}/mutate"


def test_missing_and_foreign_webhooks_and_absent_configurations_are_named(policy: Policy, live: Live) -> None:
    live[NAMES[0]]["webhooks"] = [{**live[NAMES[0]]["webhooks"][0], "name": "old.podgate.io"}]
    del live[NAMES[2]]
    assert list_differences(policy, live) == [
        f"{NAMES[0]}: mutate.podgate.io is missing, old.podgate.io is not of this policy",
        f"{NAMES[2]}: absent",
    ]


def test_an_operators_timeout_and_target_are_kept(policy: Policy, live: Live) -> None:
    webhook = live[NAMES[0]]["webhooks"][0]
    webhook.update(timeoutSeconds=30, failurePolicy="Fail")
    webhook["clientConfig"] = {"url": "https://elsewhere:1/mutate", "caBundle": "b3RoZXI="}
    [repaired] = write_outdated(policy, live)[NAMES[0]]["webhooks"]
    assert repaired["failurePolicy"] == "Ignore"
    assert repaired["timeoutSeconds"] == 30
    assert repaired["clientConfig"] == webhook["clientConfig"]


def test_without_any_webhook_there_is_no_server_to_name(policy: Policy, live: Live) -> None:
    for document in live.values():
        document.pop("webhooks")
    wanted = render_wanted_webhooks(LoadedPolicy(policy, HASH), all_calls=False)
    found = find_outdated(wanted, live)
    assert all("no live webhook names the server" in str(outdated) for outdated in found)
    assert not any(outdated.resource_version for outdated in found)
