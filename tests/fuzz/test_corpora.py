"""Corpora: every entry keeps the oracle of its target, and they are few and small."""

from collections import Counter

import pytest

from tests.fuzz.catalogue import NAMES, load_target
from tests.fuzz.corpus import BYTES_MAX, FILES_MAX, FOLDER, choose_entries, list_files, read_entries

each_target = pytest.mark.parametrize("name", NAMES)


@each_target
def test_every_entry_keeps_the_oracle(name: str) -> None:
    target, files = load_target(name), list_files(name)
    assert files
    for path in files:
        try:
            target.check(path.read_bytes())
        except BaseException as error:
            error.add_note(f"{path}")
            raise


@each_target
def test_every_seed_keeps_the_oracle(name: str) -> None:
    target = load_target(name)
    for seed in target.list_seeds():
        target.check(seed)


def test_corpora_are_few_and_small() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(NAMES)
    sizes = {name: [len(data) for data in read_entries(name)] for name in NAMES}
    assert {name: len(found) for name, found in sizes.items() if len(found) > FILES_MAX} == {}
    assert sum(map(sum, sizes.values())) <= BYTES_MAX
    counts = Counter(data for name in NAMES for data in read_entries(name))
    assert [data for data, count in counts.items() if count > 1 and len(data) > 1] == []


def test_few_inputs_are_chosen_that_reach_what_all_reach() -> None:
    target = load_target("outcomes")
    seeds = target.list_seeds()
    chosen = choose_entries(target, [*seeds, *(seed + b" " for seed in seeds)], 10_000)
    assert 0 < len(chosen) <= len(seeds)
    assert choose_entries(target, seeds, 10_000, kept=chosen) == []
    assert choose_entries(target, seeds, 0) == []
