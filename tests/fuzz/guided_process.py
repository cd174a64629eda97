"""One target under libFuzzer, in a process of its own: `python -m tests.fuzz.guided_process NAME OPTIONS FOLDERS`."""

import sys

import atheris

from tests.fuzz.catalogue import load_target
from tests.fuzz.corpus import write_entry
from tests.fuzz.guided import FAILURES
from tests.fuzz.mutators import mutate

_WATCHED = ["webhook", "certs"]


def main() -> None:
    _, name, *options = sys.argv
    with atheris.instrument_imports(include=_WATCHED):
        target = load_target(name)

    def check(data: bytes) -> None:
        try:
            target.check(data)
        except BaseException:  # also where the process then ends before it can write its input
            write_entry(FAILURES, data, f"{name}-")
            raise

    def change(data: bytes, size_max: int, seed: int) -> bytes:
        return mutate(target, data, size_max, seed, lambda data: bytes(atheris.Mutate(data, size_max)))

    atheris.Setup([sys.argv[0], *options], check, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
