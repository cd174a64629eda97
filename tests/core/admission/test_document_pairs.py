"""Pairs of a policy with `defaults` and a Pod against another opinion: a few hundred here, 20,000 in `make soak`.

The opinion is written from RFC 7386, from Kubernetes' first match of tolerations over all taints, and from the
LimitRange's rules; it reads JSON, and nothing of Podgate's code.
"""

import os

from hypothesis import Phase, event, given, seed, settings

from tests.core.generating.documents import document_of
from tests.core.generating.policies import read_document
from tests.core.generating.vocabulary import NAMESPACE_LABELS, Json
from tests.core.oracle.merging import complete_name, merge_defaults
from tests.core.oracle_comparison import find_differences
from tests.core.ranges_model import parse_amount
from tests.core.rewriting import patch_of
from tests.core.strategies import Pair, document_pairs, examples

SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))


def find_merge_faults(pair: Pair) -> list[str]:
    """Return how the service differs from one that has the merged values without `defaults`."""
    assert pair.policy.written is not None
    whole = merge_defaults(*pair.policy.written)
    alone = read_document(document_of({}, whole))
    found = (
        [] if alone is not None and alone.resolve_namespace(NAMESPACE_LABELS) == pair.service else [f"merged: {whole}"]
    )
    quota = pair.service.quota
    hard = {} if quota is None or quota.standing is None else quota.standing.hard
    limits = {complete_name(name): parse_amount(limit.text) for name, limit in hard.items()}
    wanted = whole.get("quota", {}).get("standing", {}).get("hard", {})
    expected = {complete_name(name): parse_amount(limit) for name, limit in wanted.items()}
    return found if limits == expected else [*found, f"hard: {limits}, expected {expected}"]


def has_value(value: Json | None, *path: str) -> bool:
    """Return whether there is a value that is not empty at a path."""
    if not path or not value:
        return bool(value)
    return has_value(value.get(path[0]), *path[1:])


def count_contents(pair: Pair) -> None:
    """Count the features of the pairs."""
    defaults, own = pair.policy.written or ({}, {})
    patch = [operation.path for operation in patch_of(pair.pod, pair.service)]
    tolerations = [path for path in patch if path.startswith("/spec/tolerations/")]
    resources = (pair.policy.resources or {}).get("container", {})
    for name, holds in {
        "defaults and service": bool(defaults) and bool(own),
        "hard of both": all(has_value(default, "quota", "standing", "hard") for default in (defaults, own)),
        "affinity of both": all(has_value(default, "placement", "affinity") for default in (defaults, own)),
        "selector of both": all(has_value(default, "scheduling", "near", "to") for default in (defaults, own)),
        "tolerations inserted": any(not path.endswith("-") for path in tolerations),
        "tolerations appended": any(path.endswith("-") for path in tolerations),
        "requests or limits written": any("/resources" in path for path in patch),
        "defaultRequestRatio": bool(resources.get("defaultRequestRatio")),
    }.items():
        if holds:
            event(name)


@seed(SEED)
@settings(examples(600), phases=[Phase.generate])  # to shrink such pairs takes minutes
@given(document_pairs)
def test_defaults_tolerations_and_resources_equal_those_of_the_opinion(pair: Pair) -> None:
    count_contents(pair)
    assert find_merge_faults(pair) == []
    assert find_differences(pair) == []
