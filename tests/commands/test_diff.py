"""The diff of two Pods: a unified diff of their YAML, with the rule next to each change."""

import re
import sys
from types import FrameType
from typing import Any

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.core.rule_notes.explanation import rewrite_pod
from tests.core.strategies import HASH, Json, Pair, examples, pairs
from webhook.commands.pages import yaml_page, yaml_text
from webhook.commands.pages.diff import DiffRemark, Row, build_rows
from webhook.commands.pages.yaml_text import format_yaml
from webhook.core.patch import format_pointer
from webhook.core.rule_notes import explain

FEWER = examples(30)  # each dumps and parses a Pod as YAML, which is slow
HUNK = re.compile(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@")


def apply_patch(before: list[str], hunks: list[Row]) -> list[str]:
    """Apply a unified diff by its own numbers, as patch(1) does."""
    result, at = [], 0
    for index, row in enumerate(hunks):
        if row.mark != "@":
            continue
        found = HUNK.fullmatch(row.text)
        assert found, row.text
        start, old, _, new = map(int, found.groups())
        result += before[at : start - 1]
        end = next((place for place in range(index + 1, len(hunks)) if hunks[place].mark == "@"), len(hunks))
        body = hunks[index + 1 : end]
        assert [line.text for line in body if line.mark != "+"] == before[start - 1 : start - 1 + old]
        kept = [line.text for line in body if line.mark != "-"]
        assert len(kept) == new
        result += kept
        at = start - 1 + old
    return result + before[at:]


def lines(document: Json) -> list[str]:
    return format_yaml(document).removesuffix("\n").split("\n")


def render_diff(before: Json, after: Json, *more: Any) -> str:
    return click.unstyle(yaml_page.format_diff(before, after, "Pod p", *more))


@FEWER
@given(pairs)
def test_diff_applies_and_gives_the_rewritten_pod(pair: Pair) -> None:
    after = rewrite_pod(pair.pod, pair.service)
    assert apply_patch(lines(pair.pod), build_rows(pair.pod, after)) == lines(after)


@FEWER
@given(pairs)
def test_every_remark_of_an_explanation_has_a_line(pair: Pair) -> None:
    after = rewrite_pod(pair.pod, pair.service)
    notes = explain(pair.pod, pair.service, HASH)
    remarks = {DiffRemark(mark.pointer, mark.is_removal, note.rule, "") for note in notes for mark in note.marks}
    shown = {remark for row in build_rows(pair.pod, after, list(remarks)) for remark in row.remarks}
    assert shown == remarks


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "two\nlines\n",
        "a\u2028b",
        "é\x85",
        "\x1b[31m",
        " ",
        "",
        "x" * 500,
        "yes",
        "- a: b",
        "a #b",
        "\t",
        None,
        1.5,
    ],
)
def test_yaml_is_parsed_to_the_same_value(value: Any) -> None:
    document = {"a": value, "b": [value, {"c": value}], str(value): {}}
    text = format_yaml(document)
    assert yaml.safe_load(text) == document
    assert "\x1b" not in text
    assert apply_patch(lines({}), build_rows({}, document)) == lines(document)


SIGNS = "a1:#-é\x85\u2028'\"|~{[%@😀\x1b\r\\=,&*!>?.\n\t /_yYnN"
WORDS = ["yes", "No", "null", "TRUE", "y", "a.b/c_d-e", "/bin/sh", "1e3", "<<", *("x" * n for n in (63, 64, 127, 5000))]
AWKWARD = st.text(st.sampled_from(SIGNS), max_size=6) | st.sampled_from(WORDS)
LEAVES = AWKWARD | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just({}) | st.just([])
DOCUMENTS = st.dictionaries(
    AWKWARD, st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(AWKWARD, inner), max_leaves=12)
)


@examples(300)
@given(DOCUMENTS)
def test_layout_equals_that_of_pyyaml(document: Json) -> None:
    whole = yaml_text._dump(document)
    assert format_yaml(document) == whole.removesuffix("...\n")  # an end mark without use: it follows kept line ends


@examples(100)
@given(DOCUMENTS)
def test_span_contains_exactly_its_value(document: Json) -> None:
    layout = yaml_text.YamlLayout(document)
    for at, value in document.items():
        start, end = layout.spans[format_pointer(at)]
        assert yaml.safe_load("\n".join([*layout.lines[start:end], ""])) == {at: value}


def count_diff_calls(containers: int) -> int:
    """Return how many Python functions are called to show the diff of a Pod."""

    def pod(memory: str) -> Json:
        resources = {"requests": {"cpu": "1", "memory": memory}}
        each = [{"name": f"c{index}", "image": f"i:{index}", "resources": resources} for index in range(containers)]
        return {"metadata": {"name": "p"}, "spec": {"containers": each}}

    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before, after = pod("1Gi"), pod("2Gi")
    render_diff(before, after)  # fills the caches of scalars
    sys.setprofile(count)
    try:
        render_diff(before, after)
    finally:
        sys.setprofile(None)
    return calls


def test_work_for_a_diff_grows_linearly_with_the_pod() -> None:
    small, large = count_diff_calls(20), count_diff_calls(200)
    assert large < 12 * small


def test_yaml_has_no_anchors_and_block_style_scripts() -> None:
    shared = {"x": "z"}
    text = format_yaml({"a": shared, "b": shared, "run": "set -e\nexec it\n", "long": "word " * 60})
    assert text == f"a:\n  x: z\nb:\n  x: z\nrun: |\n  set -e\n  exec it\nlong: '{'word ' * 60}'\n"


BEFORE: Json = {
    "spec": {"nodeSelector": {"disk": "hdd"}, "priority": 7, "tolerations": [{"key": "a", "operator": "Exists"}]}
}
AFTER: Json = {
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}],
    }
}
REMARKS = [
    DiffRemark("/spec/nodeSelector/disk", is_removal=False, short="selector", long="selector: overrides hdd"),
    DiffRemark("/spec/priority", is_removal=True, short="class", long="class: goes"),
    DiffRemark("/spec/tolerations/1", is_removal=False, short="toleration", long="toleration"),
]
HEAD = "--- Pod p\n+++ Pod p (rewritten)\n@@ -1,7 +1,8 @@\n spec:\n   nodeSelector:\n"


def test_only_real_changes_are_marked() -> None:
    assert render_diff(BEFORE, AFTER) == HEAD + (
        "-    disk: hdd\n+    disk: ssd\n-  priority: 7\n   tolerations:\n   - key: a\n     operator: Exists\n"
        "+  - key: b\n+    operator: Exists\n"
    )


def test_reasons_are_aligned_beside_the_first_line_of_a_change() -> None:
    assert render_diff(BEFORE, AFTER, REMARKS) == HEAD + (
        "-    disk: hdd\n"
        "+    disk: ssd  # selector: overrides hdd\n"
        "-  priority: 7  # class: goes\n"
        "   tolerations:\n"
        "   - key: a\n"
        "     operator: Exists\n"
        "+  - key: b     # toleration\n"
        "+    operator: Exists\n"
    )


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, ["+    disk: ssd  # selector: overrides hdd"]),
        (41, ["+    disk: ssd  # selector: overrides hdd"]),
        (40, ["+    disk: ssd  # selector"]),
        (26, ["+    disk: ssd  # selector"]),
        (25, [" # selector", "+    disk: ssd"]),
    ],
)
def test_long_reason_is_shortened_or_moved_above(width: int | None, expected: list[str]) -> None:
    shown = render_diff(BEFORE, AFTER, REMARKS[:1], width).splitlines()
    at = next(index for index, line in enumerate(shown) if "disk: ssd" in line)
    assert shown[at + 1 - len(expected) : at + 1] == expected


def test_long_line_does_not_shift_other_reasons() -> None:
    after = {"a": "x" * 100, "b": "z"}
    remarks = [
        DiffRemark("/a", is_removal=False, short="long", long="long"),
        DiffRemark("/b", is_removal=False, short="short", long="short"),
    ]
    shown = render_diff({}, after, remarks).splitlines()
    assert shown[-2:] == [f"+a: {'x' * 100}  # long", "+b: z  # short"]


def test_several_rules_of_one_line_are_named_once() -> None:
    remarks = [DiffRemark("/a", is_removal=False, short=rule, long=rule) for rule in ("one", "two", "one")]
    assert render_diff({}, {"a": 1}, remarks).endswith("+a: 1  # one, two\n")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"a": {}, "b": 1}, {"a": {"x": 1}, "b": 1}, ["-a: {}", "+a:", "+  x: 1", " b: 1"]),
        ({"a": [], "b": 1}, {"a": [1], "b": 1}, ["-a: []", "+a:", "+- 1", " b: 1"]),
        ({"a": {"x": 1}, "b": 1}, {"a": {}, "b": 1}, ["-a:", "-  x: 1", "+a: {}", " b: 1"]),
        ({"a": [{"x": 1, "z": 2}]}, {"a": [{"z": 2}]}, [" a:", "-- x: 1", "-  z: 2", "+- z: 2"]),
        ({"a": [{}]}, {"a": [{"x": 1}]}, [" a:", "-- {}", "+- x: 1"]),
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, ["-a: 1", "+a: 2", "-b: 1", "+b: 2"]),
        ({"a": None}, {"a": {"x": 1}}, ["-a: null", "+a:", "+  x: 1"]),
    ],
)
def test_each_kind_of_change_has_a_minimal_diff(before: Json, after: Json, shown: list[str]) -> None:
    assert render_diff(before, after).splitlines()[3:] == shown


def test_equal_objects_have_no_diff() -> None:
    assert render_diff(BEFORE, BEFORE, REMARKS) == ""


def test_colours_follow_the_mark_and_reasons_are_dim() -> None:
    shown = yaml_page.format_diff(BEFORE, AFTER, "Pod p", REMARKS)
    assert (
        click.style("+    disk: ssd", fg="green") + "  " + click.style("# selector: overrides hdd", dim=True) in shown
    )
    assert click.style("-  priority: 7", fg="red") + "  " + click.style("# class: goes", dim=True) in shown
