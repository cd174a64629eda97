"""Edits of a document: the result means what was meant, and every other byte stays."""

import random
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.document.editing import EditingError, add_entry, format_flow, move_entry, remove_entry, set_field
from webhook.core.document.yaml.problems import Path
from webhook.core.document.yaml.reader import read_yaml

COMMENTS = ("# why", "# é 🚚 - name: x", "#", "#- name: {x: [")
MODES = ("Enforce", "Warn", "Audit", "Disabled")


def make_service(draw: random.Random, indent: str) -> list[str]:
    def note(depth: int) -> list[str]:
        return [f"{indent}{' ' * depth}{draw.choice(COMMENTS)}"] if draw.random() < 0.3 else []

    def tail() -> str:
        return f"  {draw.choice(COMMENTS)}" if draw.random() < 0.3 else ""

    lines = [*note(0), f"{indent}- name: s{draw.randrange(10**6)}{tail()}", *note(2)]
    match draw.randrange(4):
        case 0:
            lines.append(f"{indent}  modes: {{quota: {draw.choice(MODES)}}}{tail()}")
        case 1:
            lines += [f"{indent}  modes:", *note(4), f"{indent}    quota: {draw.choice(MODES)}{tail()}"]
        case 2:
            lines += [f'{indent}  "modes": {{}}{tail()}', *note(4)]
    if draw.random() < 0.3:
        lines += [f"{indent}  text: |", f"{indent}    # no comment", "", f"{indent}      - name: no"]
    lines.append(f"{indent}  match: {{namespaces: ['a', \"b-*\", é]}}{tail()}")
    if draw.random() < 0.5:
        windows = [f"{{window: {draw.randrange(1, 60)}m, hard: {{pods: 3}}}}" for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.5:
            lines.append(f"{indent}  windows: [ {' ,  '.join(windows)} ]{tail()}")
        else:
            dash = indent + draw.choice(("  ", "    "))
            lines.append(f"{indent}  windows:{tail()}")
            for window in windows:
                lines += [*note(2 if dash == indent + "  " else 4), f"{dash}- {window}{tail()}"]
    return lines


def make_document(seed: int) -> bytes:
    draw = random.Random(seed)  # noqa: S311  no secret
    newline = draw.choice(("\n", "\n", "\r\n"))
    indent = draw.choice(("", "  "))
    lines = ["# head", *[draw.choice(COMMENTS)] * draw.randrange(2), "apiVersion: podgate.io/v1alpha1", "services:"]
    for _ in range(draw.randrange(1, 6)):
        lines += draw.choice(([], [""], ["", f"{indent}# apart", ""]))
        lines += make_service(draw, indent)
    if draw.random() < 0.5:
        lines += ["# of the next", "unmatched: Admit  # last"]
    text = newline.join(lines) + newline * draw.randrange(3)
    return ("\ufeff" * draw.randrange(2) + text).encode()


def parse(raw: bytes) -> Any:
    return read_yaml(raw).root.strip_positions()


def count_comments(raw: bytes) -> Counter[str]:
    return Counter(line[line.index("#") :].strip() for line in raw.decode().splitlines() if "#" in line)


def check(raw: bytes, found: bytes, change: Callable[[Any], None]) -> None:
    meant = deepcopy(parse(raw))
    change(meant)
    assert parse(found) == meant


documents = st.integers(0, 2**32).map(make_document)
numbers = st.integers(0, 1000)


@given(documents, numbers, numbers)
def test_a_moved_service_takes_its_comments_along(raw: bytes, one: int, other: int) -> None:
    count = len(parse(raw)["services"])
    place, to = one % count, other % count
    found = move_entry(raw, ("services", place), to)
    check(raw, found, lambda tree: tree["services"].insert(to, tree["services"].pop(place)))
    assert Counter(found.splitlines()) == Counter(raw.splitlines())
    assert move_entry(found, ("services", to), place) == raw


@given(documents, numbers, numbers, numbers)
def test_a_moved_window_leaves_every_other_byte(raw: bytes, which: int, one: int, other: int) -> None:
    having = [number for number, found in enumerate(parse(raw)["services"]) if "windows" in found]
    if not having:
        return
    path: Path = ("services", having[which % len(having)], "windows")
    count = len(parse(raw)["services"][path[1]]["windows"])
    place, to = one % count, other % count
    found = move_entry(raw, (*path, place), to)
    windows: Callable[[Any], list[Any]] = lambda tree: tree["services"][path[1]]["windows"]  # noqa: E731  two uses
    check(raw, found, lambda tree: windows(tree).insert(to, windows(tree).pop(place)))
    assert Counter(found) == Counter(raw)
    assert move_entry(found, (*path, to), place) == raw


@given(documents, numbers, st.sampled_from(MODES), st.sampled_from(("quota", "breaker")))
def test_a_mode_changes_alone(raw: bytes, which: int, mode: str, name: str) -> None:
    place = which % len(parse(raw)["services"])
    found = set_field(raw, ("services", place, "modes", name), mode)
    check(raw, found, lambda tree: tree["services"][place].setdefault("modes", {}).update({name: mode}))
    assert count_comments(found) == count_comments(raw)
    before, after = Counter(raw.splitlines()), Counter(found.splitlines())
    assert sum((before - after).values()) <= 1
    assert sum((after - before).values()) <= 1


@given(documents, numbers)
def test_a_removed_service_leaves_the_others(raw: bytes, which: int) -> None:
    count = len(parse(raw)["services"])
    place = which % count
    if count == 1:
        with pytest.raises(EditingError, match="the only entry"):
            remove_entry(raw, ("services", place))
        return
    found = remove_entry(raw, ("services", place))
    check(raw, found, lambda tree: tree["services"].pop(place))
    assert not Counter(line for line in found.splitlines() if line) - Counter(raw.splitlines())
    assert b"# head" in found
    assert found.count(b"# apart") == raw.count(b"# apart")
    assert found.count(b"# of the next") == raw.count(b"# of the next")


@given(documents, numbers)
def test_an_added_entry_is_the_last_one(raw: bytes, which: int) -> None:
    added = {"name": "new", "match": {"namespaces": ["yes", "a: b"]}}
    found = add_entry(raw, ("services",), added)
    check(raw, found, lambda tree: tree["services"].append(added))
    assert not Counter(raw.splitlines()) - Counter(found.splitlines())
    place = which % len(parse(raw)["services"])
    window = {"window": "5m", "hard": {"pods": 4, "cpu": "2"}}
    found = add_entry(raw, ("services", place, "windows"), window)
    check(raw, found, lambda tree: tree["services"][place].setdefault("windows", []).append(window))
    assert count_comments(found) == count_comments(raw)


@given(
    st.recursive(
        st.text(max_size=8) | st.integers(-(10**17), 10**17) | st.booleans(), lambda inner: st.lists(inner, max_size=3)
    )
)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert parse(f"a: {format_flow(value)}\n".encode()) == {"a": value}


SHARED = b"a: &shared {quota: Audit}\nb: *shared\nc:\n- &x {n: 1}\n- {m: 2}\n- *x\n"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda: set_field(SHARED, ("a", "quota"), "Warn"), "a.quota: more than this would change"),
        (lambda: set_field(SHARED, ("b", "quota"), "Warn"), "b.quota: more than this would change"),
        (lambda: move_entry(SHARED, ("c", 2), 0), "after the change the document cannot be read"),
        (lambda: move_entry(SHARED, ("c", 0), 9), "no such place"),
        (lambda: move_entry(SHARED, ("d", 0), 0), "d: no list"),
        (lambda: set_field(b"a:\n  b: 1\n", ("a",), 2), "a: it has several lines"),
        (lambda: set_field(b"a: |\n  b\n", ("a",), 2), "a: it has several lines"),
        (lambda: set_field(b"a: 1\n", ("a", "b"), 2), "a.b: there is no place for it"),
        (lambda: move_entry(b"- - 1\n  - 2\n", (0, 0), 1), "its dash is not the first"),
        (lambda: remove_entry(b"a: [1, # of 1\n 2]\n", ("a", 1)), "a comment stands between"),
    ],
)
def test_a_layout_that_cannot_be_kept_is_refused(edit: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(EditingError, match=reason.replace("[", r"\[")):
        edit()


def test_an_alias_moves_as_it_is_written() -> None:
    assert move_entry(SHARED, ("c", 2), 1) == SHARED.replace(b"- {m: 2}\n- *x\n", b"- *x\n- {m: 2}\n")
    assert move_entry(b"- &x 1\n- [*x, 2]\n", (1, 0), 1) == b"- &x 1\n- [2, *x]\n"
