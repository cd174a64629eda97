"""Shell commands of the documents: those in fenced blocks, and those in code spans."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "manifests").rglob("*.md"))
    if path.name != "CHANGELOG.md"  # of past releases
)

PROGRAMS = frozenset({"podgate", "kubectl", "helm", "redis-cli", "make"})
"""Programs whose names begin a command wherever they are: output and diagrams are in fenced blocks too."""

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_TOLD = re.compile(r"(?:\b(?:run|try|type|use|with)|\b(?:first|urgent|wanted|then):?)$", re.IGNORECASE)
"""Words before a code span with a command that the reader is to type as it is."""
_SHELL = frozenset({"sh", "bash", "console"})
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_BEFORE = 20
_SEPARATORS = frozenset(";|&()")
_REDIRECTIONS = frozenset("<>&")


@dataclass(frozen=True)
class Command:
    """A simple command: its words without assignments and redirections; of a code span it may be a part only.

    It is `whole` in a block, and in a span that the text tells to type.
    """

    page: str
    words: tuple[str, ...]
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def find_documented() -> list[Command]:
    """Return all commands, each once."""
    found = (command for path in PAGES for command in _find_in_page(str(path.relative_to(ROOT)), path.read_text()))
    return list(dict.fromkeys(found))


def flags_in_spans() -> set[tuple[str, str]]:
    """Return the flags that a code span begins with, each with its page."""
    spans = ((path.name, span) for path in PAGES for _, span in _spans(path.read_text()))
    return {(page, match[0]) for page, span in spans if (match := re.match(r"--[a-z][a-z0-9-]*", span))}


def _find_in_page(page: str, text: str) -> Iterator[Command]:
    for language, block in _BLOCK.findall(text):
        for line in _lines(block):
            command = line.strip().removeprefix("$ ")
            if language in _SHELL or (not language and _begins_with_program(command)):
                yield from (Command(page, words, is_whole=True) for words in simple_commands(command))
    for before, span in _spans(text):
        if _begins_with_program(span):
            is_whole = _TOLD.search(before) is not None
            words_of_all = simple_commands(span.replace("\\|", "|"))
            yield from (Command(page, words, is_whole) for words in words_of_all if words[0] in PROGRAMS)


def _spans(text: str) -> Iterator[tuple[str, str]]:
    """Yield the code spans, each with the text directly before it."""
    prose = _BLOCK.sub("", text)
    for found in _SPAN.finditer(prose):
        yield prose[max(0, found.start() - _BEFORE) : found.start()].rstrip(), " ".join(found[1].split())


def _begins_with_program(text: str) -> bool:
    program, _, arguments = text.partition(" ")
    return program in PROGRAMS and re.match(r"[\w./-]", arguments.strip()) is not None


def _lines(block: str) -> Iterator[str]:
    """Yield the lines, joined where a backslash or an open quote continues them."""
    line = ""
    for part in block.splitlines():
        line += part
        if part.endswith("\\"):
            line = line[:-1]
            continue
        try:
            list(_lexer(line))
        except ValueError:
            line += "\n"
            continue
        yield line
        line = ""


def _lexer(line: str) -> shlex.shlex:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "$%@{}[],:!+^\\"
    return lexer


def simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command of a pipeline or list."""
    words: list[str] = []
    tokens = iter(_lexer(line))
    for token in tokens:
        if {*token} <= _REDIRECTIONS and {*token} & {*"<>"}:
            next(tokens)  # the file
        elif {*token} <= _SEPARATORS:
            yield from _find_named(words)
            words = []
        else:
            words.append(token)
    yield from _find_named(words)


def _find_named(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words from the program's name on, if there are any."""
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in {"do", "then"}):
        words = words[1:]
    if words:
        yield (words[0].removeprefix(".venv/bin/"), *words[1:])
