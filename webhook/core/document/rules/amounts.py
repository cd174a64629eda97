"""Advice on implausible amounts: a byte of memory, thousandths of a byte, billions of cores."""

import re
from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart, until_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.quota import canonical

_LEAST_BYTES = {"memory": 1 << 20, "ephemeral-storage": 1 << 10}
_PLAIN = re.compile(r"([1-9][0-9]{0,5})[a-zA-Z]*")
_MOST_CORES, _MOST_CORES_OF_A_FLEET = 10_000, 10_000_000
_PLACES = (
    *(("services", "*", "resources", "container", word) for word in ("min", "defaultRequest", "default", "max")),
    *(("services", "*", "resources", "pod", word) for word in ("min", "max")),
    ("services", "*", "quota", "windows", "*", "hard"),
    ("services", "*", "quota", "standing", "hard"),
    ("pools", "*", "windows", "*", "hard"),
)
_OF_QUOTA = "hard"


def units_are_meant(document: DocumentPart) -> Iterator[Problem]:
    """`resources`, `hard`: warn about memory below 1Mi, storage below 1Ki, cpu below 1m, and impossibly many cores."""
    seen = set[int]()
    for path in _PLACES:
        for amounts in document.select(*path):
            if id(amounts.node.value) in seen:  # inherited from `defaults`, or by an alias
                continue
            seen.add(id(amounts.node.value))
            for resource, part in amounts.fields().items():
                yield from until_invalid(_is_meant(resource, part, is_quota=path[-1] == _OF_QUOTA))


def _is_meant(resource: str, part: DocumentPart, *, is_quota: bool) -> Iterator[Problem]:
    name = canonical(resource).partition(".")[2] if is_quota else resource
    value, text = part.read(Quantity).value, part.node.text
    digits = found[1] if (found := _PLAIN.fullmatch(text)) else "1"
    if not value:
        return
    if name in _LEAST_BYTES and value < _LEAST_BYTES[name]:
        how_many = "less than a byte" if value < 1 else "1 byte" if value == 1 else f"{float(value):g} bytes"
        remedy = f"write a unit, such as {digits}Mi or {digits}Gi"
        yield part.wrong(f"{how_many}, less than any container needs", remedy)
    elif name == "cpu" and value > (_MOST_CORES_OF_A_FLEET if is_quota else _MOST_CORES):
        remedy = f"write cores, such as {digits}, or thousandths, such as {digits}m"
        yield part.wrong(f"{int(value)} cores", remedy)
    elif name == "cpu" and value * 1000 < 1 and not is_quota:
        yield part.wrong("finer than 1m, the smallest unit of a container's cpu", "write 1m or more")
