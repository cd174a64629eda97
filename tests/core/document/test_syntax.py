"""Messages about YAML syntax errors: plain text and one remedy, for both of PyYAML's parsers."""

import json
import random
from typing import Any

import pytest
import yaml

from tests.core.document.documents import HEAD, SERVICE
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.yaml.syntax_errors import describe_syntax_error

TEXT = HEAD + SERVICE
PARSERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]

BROKEN = {
    "- a\n\t- b: c\n": (2, 1, "a tab cannot indent YAML", "use spaces"),
    "a:\n\tb: c\n": (2, 1, "a tab cannot indent YAML", "use spaces"),
    "a: b: c\n": (1, 5, "a colon where no field can begin", "quote the value, or fix the indentation"),
    "a: 1\n b: 2\n": (2, 3, "a colon where no field can begin", "quote the value, or fix the indentation"),
    "a: @b\n": (1, 4, "a plain value cannot begin with this character", "quote the value"),
    "a: *\n": (1, 5, "* begins an alias, and no name follows", "quote the value"),
    "a: &\n": (1, 5, "& begins an anchor, and no name follows", "quote the value"),
    'a: "b\nc: d\n': (3, 1, "the quote is never closed (it began in line 1)", "close it"),
    "a: [b, c: d\n": (
        2,
        1,
        "the list in [...] is not closed, or lacks a comma (it began in line 1)",
        "write `,` or `]` here",
    ),
    "a: [b}\n": (1, 6, "the list in [...] is not closed, or lacks a comma", "write `,` or `]` here"),
    "a: {b: c]\n": (1, 9, "the mapping in {...} is not closed, or lacks a comma", "write `,` or `}` here"),
    "a: b\nc\n": (3, 1, "a line without a colon, where a field belongs", "write `NAME: VALUE`"),
    "a:\n  b: 1\n c: 2\n": (
        3,
        2,
        "not aligned with the fields above",
        "align it with the fields that it belongs to",
    ),
    'a: "\\q"\n': (1, 5, "not an escape sequence of double quotes", "write the backslash twice, or use single quotes"),
    "a: {{ .Values.x }}\n": (1, 4, "this looks like a Helm or Go template", "render it first, and give the result"),
    "{{- if .x }}\na: b\n{{- end }}\n": (
        1,
        1,
        "this looks like a Helm or Go template",
        "render it first, and give the result",
    ),
    "{% if x %}\na: b\n": (1, 1, "this looks like a Jinja template", "render it first, and give the result"),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", BROKEN)
def test_syntax_error_has_line_reason_and_remedy(text: str, parser: Any) -> None:
    line, column, reason, remedy = BROKEN[text]
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load(text, parser)  # noqa: S506 - both are safe loaders
    found = describe_syntax_error(caught.value, text)
    assert (found.line, found.reason) == (line, reason)
    if parser is not yaml.SafeLoader:  # its columns, and its remedies for brackets, differ
        assert (found.column, found.remedy) == (column, remedy)


JARGON = ("token", "scalar", "simple key", "block mapping", "flow ", "node", "stream", "collection", "constructor")


def test_syntax_errors_contain_no_jargon_of_the_parser() -> None:
    seeded = random.Random(7)  # noqa: S311
    messages = set()
    for _ in range(3000):
        at, length = seeded.randrange(len(TEXT)), seeded.randrange(3)
        broken = TEXT[:at] + seeded.choice("\t{}[]'\"@`%*&!|>:,#-?\\ \n") + TEXT[at + length :]
        try:
            load(broken.encode(), Purpose.LINT)
        except DocumentError as error:
            messages |= {
                f"{problem.reason}: {problem.remedy}" for problem in error.problems if problem.path == "(document)"
            }
    assert messages
    assert [line for line in messages for word in JARGON if word in line] == []


def list_syntax_problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load(text.encode(), Purpose.LINT)
    return [f"{problem.line}:{problem.column}: {problem.path}: {problem.reason}" for problem in caught.value.problems]


def test_template_is_a_single_problem() -> None:
    text = TEXT + '- name: "{{ .Values.name }}"\n  match: {namespaces: [{{ .Values.ns }}]}\n  unknown: 1\n'
    line = text[: text.index("{{")].count("\n") + 1
    assert list_syntax_problems(text) == [f"{line}:10: (document): this looks like a Helm or Go template"]


def test_template_in_a_comment_is_no_problem() -> None:
    text = "# from {{ .Values.x }}\n" + TEXT + "unknown: 1 # {{ .Values.y }}\n"
    assert [line.rpartition(": ")[2] for line in list_syntax_problems(text)] == ["unknown field"]


EMOJI = "\U0001f600"


def build_json_policy(user: str, name: str = "web") -> str:
    service = {"name": name, "match": {"namespaces": ["a"]}}
    exemptions = {"usernames": [user]}
    policy = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "exemptions": exemptions, "services": [service]}
    return json.dumps(policy)


def test_surrogate_pairs_in_json_are_decoded() -> None:
    text = build_json_policy(f"{EMOJI} \\ud83d\\ude00 {EMOJI}")
    assert text.isascii()
    loaded = load(text.encode(), Purpose.LINT)
    assert loaded.policy.policy.exemptions.usernames == (f"{EMOJI} \\ud83d\\ude00 {EMOJI}",)


def test_column_after_a_surrogate_pair_is_correct() -> None:
    text = build_json_policy(EMOJI, "Web")
    column = text.index('"Web"') + 1
    (problem,) = list_syntax_problems(text)
    assert problem == f"1:{column}: services[0].name: not a DNS-1123 label"


def test_half_a_surrogate_pair_is_a_problem() -> None:
    (problem,) = list_syntax_problems(build_json_policy("\ud83d"))
    assert problem.endswith("(document): not the code of a character")
