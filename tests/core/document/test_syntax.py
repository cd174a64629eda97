"""Messages about YAML syntax errors: plain text and one remedy, for both of PyYAML's parsers."""

import json
import random
from typing import Any

import pytest
import yaml

from tests.core.document.documents import HEAD, SERVICE
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.yaml.syntax_errors import in_words

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
def test_a_syntax_error_is_reported_in_plain_words(text: str, parser: Any) -> None:
    line, column, reason, remedy = BROKEN[text]
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load(text, parser)  # noqa: S506 - both are safe loaders
    found = in_words(caught.value, text)
    assert (found.line, found.reason) == (line, reason)
    if parser is not yaml.SafeLoader:  # its marks, and what it expects in brackets, differ
        assert (found.column, found.remedy) == (column, remedy)


JARGON = ("token", "scalar", "simple key", "block mapping", "flow ", "node", "stream", "collection", "constructor")


def test_whatever_is_broken_is_reported_without_the_parsers_jargon() -> None:
    seeded = random.Random(7)  # noqa: S311
    told = set()
    for _ in range(3000):
        at, length = seeded.randrange(len(TEXT)), seeded.randrange(3)
        broken = TEXT[:at] + seeded.choice("\t{}[]'\"@`%*&!|>:,#-?\\ \n") + TEXT[at + length :]
        try:
            load(broken.encode(), Purpose.LINT)
        except DocumentError as error:
            told |= {f"{one.reason}: {one.remedy}" for one in error.problems if one.path == "(document)"}
    assert told
    assert [line for line in told for word in JARGON if word in line] == []


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load(text.encode(), Purpose.LINT)
    return [f"{one.line}:{one.column}: {one.path}: {one.reason}" for one in caught.value.problems]


def test_a_template_is_one_problem_however_much_of_it_would_be_wrong() -> None:
    text = TEXT + '- name: "{{ .Values.name }}"\n  match: {namespaces: [{{ .Values.ns }}]}\n  unknown: 1\n'
    line = text[: text.index("{{")].count("\n") + 1
    assert problems(text) == [f"{line}:10: (document): this looks like a Helm or Go template"]


def test_a_template_in_a_comment_is_none() -> None:
    text = "# from {{ .Values.x }}\n" + TEXT + "unknown: 1 # {{ .Values.y }}\n"
    assert [line.rpartition(": ")[2] for line in problems(text)] == ["unknown field"]


FACE = "\U0001f600"


def a_json_policy(user: str, name: str = "web") -> str:
    service = {"name": name, "match": {"namespaces": ["a"]}}
    exemptions = {"usernames": [user]}
    whole = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "exemptions": exemptions, "services": [service]}
    return json.dumps(whole)


def test_surrogate_pairs_of_json_are_the_characters_that_they_stand_for() -> None:
    text = a_json_policy(f"{FACE} \\ud83d\\ude00 {FACE}")
    assert text.isascii()
    loaded = load(text.encode(), Purpose.LINT)
    assert loaded.policy.policy.exemptions.usernames == (f"{FACE} \\ud83d\\ude00 {FACE}",)


def test_behind_a_surrogate_pair_columns_are_right() -> None:
    text = a_json_policy(FACE, "Web")
    column = text.index('"Web"') + 1
    (told,) = problems(text)
    assert told == f"1:{column}: services[0].name: not a DNS-1123 label"


def test_half_a_surrogate_pair_is_no_character() -> None:
    (told,) = problems(a_json_policy("\ud83d"))
    assert told.endswith("(document): not the code of a character")
