"""The whole patch for any Pod and policy: correct, minimal, applicable, idempotent, without exceptions."""

import msgspec
import pytest
from hypothesis import given

from tests.core.oracle_comparison import find_oracle_faults, find_unneeded_operations
from tests.core.pairs import draw_usual_pairs
from tests.core.rewriting import decode_patch, patch_of, rewrite_pod
from tests.core.strategies import (
    HASH,
    OUR_ANNOTATION,
    OUR_LABEL,
    Governed,
    Json,
    Pair,
    examples,
    illegal_pods,
    pairs,
    policies,
)
from webhook.core.admission.mutation import DISOWN
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode


@examples(120)
@given(pairs)
def test_rewrite_fulfils_user_and_policy_and_changes_nothing_else(pair: Pair) -> None:
    assert find_oracle_faults(pair, rewrite_pod(pair.pod, pair.service)) == []


@examples(120)
@given(pairs)
def test_rewrite_is_idempotent(pair: Pair) -> None:
    assert patch_of(rewrite_pod(pair.pod, pair.service), pair.service) == ()


@examples(60)
@given(pairs)
def test_every_operation_and_every_copied_term_is_needed(pair: Pair) -> None:
    assert find_unneeded_operations(pair) == []


@examples(120)
@given(illegal_pods, policies)
def test_rewrite_of_an_invalid_pod_is_idempotent(raw: Json, policy: Governed) -> None:
    assert patch_of(rewrite_pod(raw, policy.service), policy.service) == ()


def test_patch_has_four_operations_on_labels_annotations_and_spec_only() -> None:
    fields = {"add": {"value"}, "replace": {"value"}, "remove": set(), "copy": {"from"}}
    for pair in draw_usual_pairs():
        for operation in decode_patch(patch_of(pair.pod, pair.service)):
            assert set(operation) == {"op", "path"} | fields[operation["op"]]
            assert operation["path"].startswith(("/metadata/labels", "/metadata/annotations", "/spec/"))


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT, Mode.DISABLED])
def test_unenforced_placement_changes_label_and_annotation_only(mode: Mode) -> None:
    for pair in draw_usual_pairs():
        lenient = msgspec.structs.replace(pair.service, modes=Modes(placement=mode))
        patched = rewrite_pod(pair.pod, lenient)
        assert patched["spec"] == pair.pod["spec"]
        assert patched["metadata"]["labels"][OUR_LABEL] == "s"
        assert patched["metadata"]["annotations"][OUR_ANNOTATION] == HASH


def test_service_with_every_mode_disabled_is_not_rewritten() -> None:
    off = Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED)
    for pair in draw_usual_pairs():
        is_anothers = (pair.pod["metadata"].get("labels") or {}).get(OUR_LABEL, "s") != "s"
        patch = patch_of(pair.pod, msgspec.structs.replace(pair.service, modes=off))
        assert patch == (DISOWN if is_anothers else ())
