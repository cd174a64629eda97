"""Problems of a document: position, path, value, reason and remedy, one line per problem."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

Path = tuple[str | int, ...]

DOCUMENT = "(document)"
"""The path of problems with the whole document."""

_SHOWN_CHARACTERS_MAX = 80  # of a value or a key
_PLAIN = re.compile(r"[\w./*%+@-]{1,80}", re.ASCII)
_BARE_KEY = re.compile(r"[A-Za-z_][\w-]{0,79}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake; `line` and `column` count from 1, as editors do."""

    line: int
    column: int
    path: str
    value: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.path}: {self.value}: {self.reason}: {self.remedy}"


class DocumentError(Exception):
    """The document is invalid; `problems` are all of its problems, in the order of lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sort_problems(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort by position, without the duplicates of services that inherit a mistake from `defaults` or an alias."""
    unique: dict[tuple[int, int, str, str], Problem] = {}
    for problem in sorted(problems):
        field = problem.path.rpartition(".")[2]  # missing fields of one object share a position
        unique.setdefault((problem.line, problem.column, problem.reason, field), problem)
    return tuple(unique.values())


def format_path(path: Path) -> str:
    """Write a path as users do: `services[0].quota.windows[1].hard["requests.cpu"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _BARE_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{quote(step)}]"
    return text or DOCUMENT


def format_value(text: str) -> str:
    """Show a value on one line, in quotes if it could be misread."""
    return text if _PLAIN.fullmatch(text) else quote(text)


def quote(text: str) -> str:
    """Show a value in quotes, on one line."""
    cut = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"
    return json.dumps(cut, ensure_ascii=not cut.isprintable())


def find_close(word: str, words: Iterable[str]) -> str | None:
    """Return which of `words` was probably meant by `word`."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    found = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def join_words(words: Sequence[str]) -> str:
    """Write `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def suggest(word: str, words: Sequence[str], otherwise: str) -> str:
    """Suggest a similar word; without one, list all `words` after `otherwise`."""
    meant = find_close(word, words)
    if meant is not None:
        return f"did you mean {meant}?"
    return f"{otherwise} {join_words(words)}" if words else "remove it"
