"""Helpers of the `live` tests that other tests use, too."""

from typing import Any

import pytest

from tests.core.webhook_configurations.configurations import policy_of
from webhook.core.policy.model import Policy
from webhook.core.webhook_configurations import (
    ClientConfig,
    ConfigurationName,
    ServiceReference,
    render_configurations,
)

HASH = "0123456789abcdef"


SECRET = "s" * 40


CLIENTS = [
    ClientConfig(ServiceReference("podgate-system", "podgate", 8443), b"the CA"),
    ClientConfig("https://10.0.0.1:8443", b"the CA"),
    ClientConfig("https://10.0.0.1:8443/", b"the CA", SECRET),
    ClientConfig(ServiceReference("podgate-system", "podgate", None), b"", SECRET),
]


Live = dict[ConfigurationName, dict[str, Any]]


def build_stored_configurations(policy: Policy, client: ClientConfig, *, all_calls: bool = False) -> Live:
    """Return the configurations of a policy as the API server returns them: with its defaults, without empty fields."""
    found: Live = {}
    for configuration in render_configurations(policy, client, HASH, all_calls=all_calls):
        webhooks = [{**webhook, "objectSelector": {}} for webhook in configuration["webhooks"]]
        for webhook in webhooks:
            if not webhook.get("matchConditions"):
                webhook.pop("matchConditions", None)
            if not webhook["namespaceSelector"].get("matchExpressions"):
                webhook["namespaceSelector"] = {}
        name = ConfigurationName(configuration["kind"], configuration["metadata"]["name"])
        metadata = {**configuration["metadata"], "resourceVersion": "7"}
        found[name] = {"metadata": metadata, **({"webhooks": webhooks} if webhooks else {})}
    return found


OF_ONE_SERVICE = policy_of({"match": {"namespaces": ["a"]}})


@pytest.fixture
def policy() -> Policy:
    return OF_ONE_SERVICE
