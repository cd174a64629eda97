"""Lines of series at 0 in Prometheus' text formats: made once for a policy, as they are most of a scrape."""

from collections.abc import Container, Iterable, Iterator, Mapping

from webhook.adapters.metrics.families import Family

Labels = tuple[str, ...]
"""Label values, in the family's order."""

_HELP = b"# HELP "
_EOF = b"# EOF\n"
"""End of an OpenMetrics text."""


class ZeroLines:
    """Lines of counters by family and label set."""

    def __init__(self, series: Mapping[Family, Iterable[Labels]]) -> None:
        self._lines = {family: {labels: _line(family, labels) for labels in of} for family, of in series.items()}

    def added(self, text: bytes, recorded: Mapping[Family, Container[Labels]]) -> bytes:
        """Return a text with the lines of the series that are not recorded, each in its family's group."""
        is_open = text.endswith(_EOF)
        added = {}
        for family, lines in self._lines.items():
            name = family.name.removesuffix("_total") if is_open else family.name
            of_family = recorded.get(family, ())
            unrecorded = "".join(line for labels, line in lines.items() if labels not in of_family)
            added[name.encode()] = f"{name} {family.help}\n# TYPE {name} counter\n".encode(), unrecorded.encode()
        return _HELP.join(_groups(text.removesuffix(_EOF), added)) + (_EOF if is_open else b"")


def _groups(text: bytes, added: dict[bytes, tuple[bytes, bytes]]) -> Iterator[bytes]:
    first, *groups = text.split(_HELP)
    yield first
    for group in groups:
        _, lines = added.pop(group[: group.index(b" ")], (b"", b""))
        yield group + lines
    for header, lines in added.values():
        if lines:
            yield header + lines


def _line(family: Family, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(zip(family.labels, values, strict=True)))
    return f"{family.name}{{{pairs}}} 0.0\n" if pairs else f"{family.name} 0.0\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
