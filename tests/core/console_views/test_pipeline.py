"""The view of the pipeline: stages of codes, cards of a document, and the impact in a sentence."""

from datetime import UTC, datetime

import pytest

from webhook.core.console_views.pipeline import (
    STAGES,
    DraftImpact,
    ImpactRow,
    PodDenial,
    diff_documents,
    list_cards,
    list_plain_lines,
    sort_into_stages,
)
from webhook.core.findings import Code

AT = datetime(2026, 12, 1, 4, tzinfo=UTC)


def test_each_code_of_a_denial_belongs_to_one_stage() -> None:
    for code in set(Code) - {Code.WOULD_REWRITE}:
        assert sum(code in codes for _, _, codes in STAGES) == 1, code


def test_a_pod_counts_at_the_stage_of_its_first_code() -> None:
    codes = (Code.QUOTA_EXCEEDED, Code.QUOTA_EXCEEDED, Code.BREAKER_OPEN, "Unknown", Code.UNMATCHED)
    denials = [PodDenial(str(number), AT, codes=(code,)) for number, code in enumerate(codes)]
    denials += [PodDenial("dry", AT, codes=(Code.UNMATCHED,), dry_run=True), PodDenial("none", AT)]
    stages = sort_into_stages(denials)
    assert [stage.stopped for stage in stages] == [1, 1, 0, 0, 2]
    assert [pod.id for pod in stages[-1].pods] == ["0", "1"]


def test_cards_show_own_and_inherited_modes_and_lists() -> None:
    document = {
        "defaults": {"modes": {"quota": "Audit", "breaker": "Warn"}},
        "services": [
            {"name": "a", "match": {"namespaces": ["x" * 200]}, "modes": {"breaker": "Enforce"}},
            {"name": "b", "rules": [{"name": "no-latest"}], "quota": {"windows": [{"window": "1m"}, {"window": "1h"}]}},
        ],
    }
    first, second = list_cards(document)
    assert first.modes == (("quota", "Audit"), ("breaker", "Enforce"))
    assert first.matches.endswith("...")
    assert [(found.title, len(found.entries)) for found in second.lists] == [("Windows", 2), ("Rules", 1)]
    assert second.lists[0].entries[1].path == "services/1/quota/windows/1"
    assert second.lists[0].entries[1].text == "window: 1h"


@pytest.mark.parametrize("document", [None, [], {}, {"services": 1}, {"services": ["a", {"quota": 3, "match": 1}]}])
def test_a_document_of_any_shape_has_cards(document: object) -> None:
    list(list_cards(document))


def test_the_impact_is_said_in_a_sentence() -> None:
    same = ImpactRow("a", 80, 2, 2, {}, ())
    worse = ImpactRow("b", 40, 0, 7, {"denied": 7}, ())
    assert "denies 9, the policy in force 2" in DraftImpact(120, (worse, same)).summary
    assert DraftImpact(80, (same,)).summary == "Nothing changes for the last 80 recorded Pods."
    assert "not known" in DraftImpact(0, ()).summary


def test_a_text_is_shown_only_if_it_would_come_back_as_it_is() -> None:
    assert list_plain_lines("a: é # 🚚\n".encode()) == ("a: é # 🚚", "")
    for raw in (b"a: \t1\n", b"a: 1\r\n", "# \u202e\n".encode(), b"\xff"):
        assert list_plain_lines(raw) is None


def test_a_difference_has_no_names_of_files() -> None:
    assert diff_documents(b"a\nb\n", b"a\nc\n") == ("@@ -1,2 +1,2 @@", " a", "-b", "+c")
    assert diff_documents(b"a\n", b"a\n") == ()
