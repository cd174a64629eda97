"""Hypothesis strategies: Pods as JSON with every legal variant that affects a decision, and policies for them.

Tests import them from here; `tests.core.generating` defines them.
"""

import os
from typing import Any

import msgspec
from hypothesis import settings

from tests.core.generating.equivalent_pods import (
    Pair,
    class_pairs,
    document_pairs,
    pairs,
    range_pairs,
    real_pairs,
    tenants_pairs,
    whole_pairs,
)
from tests.core.generating.invalid_pods import illegal_pods
from tests.core.generating.nodes import some_node_labels
from tests.core.generating.pods import pods, real_pods
from tests.core.generating.policies import (
    Governed,
    decode_placement,
    drawn_placements,
    policies,
    real_policies,
    services,
)
from tests.core.generating.tolerations import tolerations
from tests.core.generating.vocabulary import HASH, ODD, OUR_ANNOTATION, OUR_LABEL, REAL, REGION, ZONE, Json, draw_fields
from webhook.core.policy.model import Match, Service
from webhook.core.policy_fields import Placement

__all__ = [
    "HASH",
    "ODD",
    "OUR_ANNOTATION",
    "OUR_LABEL",
    "PROPERTY",
    "REAL",
    "REGION",
    "ZONE",
    "Governed",
    "Json",
    "Pair",
    "class_pairs",
    "decode_placement",
    "document_pairs",
    "draw_fields",
    "drawn_placements",
    "examples",
    "illegal_pods",
    "pairs",
    "pods",
    "policies",
    "range_pairs",
    "real_pairs",
    "real_pods",
    "real_policies",
    "service_of",
    "services",
    "some_node_labels",
    "tenants_pairs",
    "tolerations",
    "whole_pairs",
]


_EXAMPLES_MIN = int(os.environ.get("PODGATE_TEST_EXAMPLES", "0"))
_DIVISOR = 20 if os.environ.get("PODGATE_TEST_SHORT") else 3


def examples(usual: int) -> settings:
    """Return the number of examples: all in `make soak`, a third in `make test`, a twentieth in `make check`."""
    return settings(
        deadline=None, max_examples=max(usual, _EXAMPLES_MIN) if _EXAMPLES_MIN else max(usual // _DIVISOR, 5)
    )


PROPERTY = examples(100)


def service_of(placement: Json, **more: Any) -> Service:
    return Service("s", Match(any_namespace=True), placement=msgspec.convert(placement, Placement), **more)
