"""Helpers of the `configurations` tests that other tests use, too."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.core.strategies import Json
from webhook.core.policy.model import Modes, Policy
from webhook.core.webhook_configurations.namespace_regions import METADATA_NAME

DISABLED = dict.fromkeys(Modes.__struct_fields__, "Disabled")


NAMES = ["a", "ab", "abc", "b", "bc", "aba", "kube-system"]


names = st.sampled_from(NAMES)


patterns = names | names.map(lambda name: f"{name}*") | names.map(lambda name: f"*{name}")


keys = st.sampled_from(["t", "u"])


label_values = st.lists(st.sampled_from(["1", "2"]), min_size=1, max_size=2)


expressions = st.one_of(
    st.builds(lambda key, values: {"key": key, "operator": "In", "values": values}, keys, label_values),
    st.builds(lambda key, values: {"key": key, "operator": "NotIn", "values": values}, keys, label_values),
    st.builds(lambda key: {"key": key, "operator": "Exists"}, keys),
    st.builds(lambda key: {"key": key, "operator": "DoesNotExist"}, keys),
    names.map(lambda name: {"key": METADATA_NAME, "operator": "In", "values": [name]}),
)


selectors = st.one_of(
    st.fixed_dictionaries({"matchLabels": st.dictionaries(keys, st.sampled_from(["1", "2"]), max_size=2)}),
    st.fixed_dictionaries({"matchExpressions": st.lists(expressions, min_size=1, max_size=3)}),
)


matches = st.one_of(
    st.just({"anyNamespace": True}),
    st.fixed_dictionaries({"namespaces": st.lists(patterns, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"namespaceSelector": selectors}),
    st.fixed_dictionaries({"namespaces": st.lists(patterns, min_size=1, max_size=3), "namespaceSelector": selectors}),
)


def policy_of(*services: Json, **more: Any) -> Policy:
    written = [{"name": f"s{place}", **service} for place, service in enumerate(services)]
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": written, **more}
    return msgspec.convert(document, Policy)


policies = st.builds(
    lambda services, more: policy_of(*services, **more),
    st.lists(
        st.fixed_dictionaries(
            {
                "match": matches,
                "failureMode": st.sampled_from(["Open", "Closed"]),
                "modes": st.sampled_from([{}, {}, {}, {"placement": "Disabled"}, DISABLED]),
            }
        ),
        min_size=1,
        max_size=5,
    ),
    st.fixed_dictionaries(
        {"unmatched": st.sampled_from(["Admit", "Warn", "Deny"])},
        optional={"exemptions": st.fixed_dictionaries({"namespaces": st.lists(patterns, max_size=2)})},
    ),
)
