"""Documents as kubectl reads them, and printed text that it reads as the same value."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.kubectl_values import DOCUMENTS, REFUSED, SCALARS
from webhook.commands.pages.yaml_text import format_flow, format_yaml, format_yaml_stream
from webhook.core.document import editing
from webhook.core.document.yaml.manifest_loader import ManifestLoader
from webhook.core.document.yaml.reader import read_yaml
from webhook.errors import UserError
from webhook.support.input_files import read_documents


def read(path: Path, text: str) -> Any:
    path.write_text(text)
    try:
        [document] = read_documents(path)
    except UserError:
        return REFUSED
    return document


@pytest.mark.parametrize(("text", "value", "key"), SCALARS, ids=[text for text, _, _ in SCALARS])
def test_scalar_is_read_as_kubectl_reads_it(tmp_path: Path, text: str, value: Any, key: Any) -> None:
    found = read(tmp_path / "file", f"x: {text}")
    assert found is value or (found == {"x": value} and type(found["x"]) is type(value))
    assert read(tmp_path / "file", f"{{{text}: 0}}") == (REFUSED if key is REFUSED else {key: 0})
    assert read(tmp_path / "file", f"x: '{text}'") == {"x": text}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_document_is_read_as_kubectl_reads_it(tmp_path: Path, text: str) -> None:
    assert read(tmp_path / "file", text) == DOCUMENTS[text]


@pytest.mark.parametrize("text", [text for text in DOCUMENTS if "\t" not in text])
def test_document_is_read_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setattr("webhook.core.document.yaml.manifest_loader._LIBYAML", None)
    assert read(tmp_path / "file", text) == DOCUMENTS[text]


def test_byte_order_marks_of_joined_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("\ufeffx: 1\n---\n\ufeffx: 2\n---\r\n\ufeff{x: 3}")
    assert read_documents(tmp_path / "file") == [{"x": 1}, {"x": 2}, {"x": 3}]


STREAMS = {
    '{"a": 1}\n{"a": [2]}\n': [{"a": 1}, {"a": [2]}],
    '{"a": 1}{\n"a":\t2\n}\r\n\r\n{}': [{"a": 1}, {"a": 2}, {}],
    '{"a": 1}\n---\na: 2': [{"a": 1}, {"a": 2}],
    '---\n{"a": 1}\n---\n{"a": 2}\n': [{"a": 1}, {"a": 2}],
    " \n": [],
}


@pytest.mark.parametrize("text", STREAMS)
def test_json_documents_may_follow_each_other(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text, newline="")
    assert read_documents(tmp_path / "file") == STREAMS[text]


ERRORS = {
    "x: .inf": "line 1, column 4: a number that JSON does not have\n  quote the value",
    "x: !!int y": "line 1, column 4: not a value of the type that the tag names\n  remove the tag",
    "~: 0": "line 1, column 1: a key must be plain text\n  write a name, a colon and the value",
    "x: {1: a, 0x1: b}": 'line 1, column 11: the key "1" is duplicated\n  keep one of the two',
    "é: {a:}": "line 1, column 6: a colon before a bracket or comma\n  write a space after it, or quote the value",
    "é: '\a'": "line 1, column 5: a character that YAML does not allow\n  remove it",
    "x: {on: a, yes: b}": 'line 1, column 12: the key "true" is duplicated\n  keep one of the two',
}


@pytest.mark.parametrize("text", ERRORS)
def test_error_names_place_and_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError) as raised:
        read_documents(tmp_path / "file")
    reason, _, remedy = ERRORS[text].partition("\n  ")
    assert (str(raised.value), raised.value.remedy) == (f"{tmp_path / 'file'}: {reason}", remedy)


def test_merges_of_merges_do_not_expand(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 64))]
    assert read(tmp_path / "file", "\n".join(lines))["a63"] == {"k": "v"}


TEXTS = st.sampled_from([text for text, _, _ in SCALARS]) | st.text(
    st.sampled_from("0178_.+-eExXbBoOnNyY:~="), max_size=6
)


@given(st.lists(TEXTS, max_size=6))
def test_printed_texts_are_read_as_texts(texts: list[str]) -> None:
    document = {"x": [[text, {text: text}] for text in texts]}
    whole = [format_yaml(document), format_yaml_stream((document,)), f"x: {format_flow({'x': document['x']})[4:-1]}"]
    whole.append(f"x: {editing.format_flow(document['x'])}")
    for printed in whole:
        assert yaml.load(printed, ManifestLoader) == document  # noqa: S506  a safe loader
        assert yaml.safe_load(printed) == document
        assert read_yaml(printed.encode()).root.strip_positions() == document


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 63), (1 << 64) - 1))
def test_printed_numbers_are_read_as_the_same(number: float) -> None:
    found = yaml.load(format_yaml({"x": number}), ManifestLoader)["x"]  # noqa: S506  a safe loader
    assert math.isclose(found, number, rel_tol=1e-15)
