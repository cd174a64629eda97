"""Name patterns, and their index."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.opcode_counts import count_opcodes
from webhook.core.kubernetes.name_patterns import PatternIndex, matches_pattern

_NAMES = st.text("ab", max_size=4)
_PATTERNS = st.one_of(_NAMES, st.builds("{}*{}".format, _NAMES, _NAMES))


@given(patterns=st.lists(_PATTERNS, max_size=12), name=_NAMES)
def test_the_index_finds_each_pattern_that_a_name_matches(patterns: list[str], name: str) -> None:
    index = PatternIndex()
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    assert index.find(name) == {number for number, pattern in enumerate(patterns) if matches_pattern(pattern, name)}


def count_search(patterns: int) -> int:
    index = PatternIndex()
    for number in range(1000, 1000 + patterns):
        for pattern in (f"n{number}", f"n{number}-*", f"*-n{number}"):
            index.add(pattern, number)
    opcodes, found = count_opcodes(lambda: index.find("n1000-x"))
    assert found == {1000}
    return opcodes


def test_a_search_costs_as_much_among_many_patterns_as_among_few() -> None:
    assert count_search(3) == count_search(2000)
