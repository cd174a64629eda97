"""Nulls of manifests, as the API server's types decode them."""

import yaml

from tests.harness.kubectl_values import DECODED_NULLS, NULLS
from webhook.core.kubernetes.zero_values import fill_zero_values


def test_nulls_have_the_zero_values_of_their_types() -> None:
    assert fill_zero_values(yaml.safe_load(NULLS)) == DECODED_NULLS
    assert fill_zero_values(DECODED_NULLS) == DECODED_NULLS


def test_null_in_a_list_of_objects_is_kept() -> None:
    assert fill_zero_values({"containers": [None, {"name": None}], "x": [[None]]}) == {
        "containers": [None, {}],
        "x": [[None]],
    }
