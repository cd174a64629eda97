"""Validation of placement: it finds every deviation, and nothing else."""

import msgspec
import pytest
from hypothesis import given

from tests.core.oracle.later_changes import list_damaged_pods
from tests.core.oracle.pod_affinity import merge_label_keys
from tests.core.oracle.validating import CONFLICT, CONTRADICTION, NOT_ALLOWED
from tests.core.oracle_comparison import find_disagreements, find_findings, mark
from tests.core.pairs import draw_usual_pairs
from tests.core.rewriting import decode_pod, rewrite_pod
from tests.core.strategies import Pair, examples, pairs
from webhook.core.admission.validation import check
from webhook.core.kubernetes.types import LabelSelector, Requirement
from webhook.core.placement.canonical_form import canonicalize_selector
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode


@examples(120)
@given(pairs)
def test_rewritten_pod_has_only_conflicts_and_contradictions(pair: Pair) -> None:
    final = merge_label_keys(rewrite_pod(pair.pod, pair.service))
    assert find_disagreements(final, pair) == []
    assert {code for code, _ in find_findings(final, pair.service)} <= {CONFLICT, CONTRADICTION, NOT_ALLOWED}


@examples(120)
@given(pairs)
def test_every_missing_field_of_an_unrewritten_pod_is_found(pair: Pair) -> None:
    assert find_disagreements(mark(pair.pod), pair) == []
    assert find_disagreements(merge_label_keys(mark(pair.pod)), pair) == []


@examples(60)
@given(pairs)
def test_every_change_undone_by_a_later_webhook_is_found(pair: Pair) -> None:
    for damage, pod in list_damaged_pods(merge_label_keys(rewrite_pod(pair.pod, pair.service))):
        assert find_disagreements(pod, pair) == [], damage


def test_value_that_an_absent_label_may_not_have_changes_no_selector() -> None:
    """The API server merges `mismatchLabelKeys` also beside `DoesNotExist`; a later webhook may change the label."""
    absent, merged = Requirement("app", "DoesNotExist"), Requirement("app", "NotIn", ("x",))
    forms = {
        canonicalize_selector(LabelSelector(None, found)) for found in ((absent,), (absent, merged), (merged, absent))
    }
    assert len(forms) == 1


@pytest.mark.parametrize("mode", [Mode.WARN, Mode.AUDIT])
def test_unenforced_placement_has_the_same_findings_in_its_own_mode(mode: Mode) -> None:
    for pair in draw_usual_pairs():
        lenient = msgspec.structs.replace(pair.service, modes=Modes(placement=mode))
        pod = mark(pair.pod)
        assert find_findings(pod, lenient) == find_findings(pod, pair.service)
        assert {found.mode for found in check(decode_pod(pod), lenient, hash_known=True)} <= {mode}


def test_disabled_placement_has_no_findings() -> None:
    for pair in draw_usual_pairs():
        off = msgspec.structs.replace(pair.service, modes=Modes(placement=Mode.DISABLED))
        assert find_findings(mark(pair.pod), off) == set()
