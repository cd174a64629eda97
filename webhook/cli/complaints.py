"""What a decoder objects to, in words for who wrote the object: which field, what stands there, what belongs there."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from webhook.cli import echo
from webhook.core.totals import LONGEST_ECHO

_ERROR = re.compile(r"(?P<where>AdmissionReview(?:\.\w+)*): (?P<objection>.*)", re.DOTALL)
_OBJECTION = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?", re.DOTALL)
_TYPES = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `[^`]*`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AMOUNT = re.compile(r"resources: (?P<name>[^ ]+): (?P<value>'.*'): (?P<why>.*)", re.DOTALL)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_DEPTH_OF_POD = len(("AdmissionReview", "request", "object"))
_CONTAINERS = ("containers", "initContainers")
_WORDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_PYTHON = {"str": str, "int": int, "float": float, "bool": bool, "object": dict, "array": list, "null": type(None)}
_MAPS = frozenset({"labels", "annotations", "nodeSelector", "matchLabels", "requests", "limits", "overhead"})

Field = Sequence[str | int]


class Complaint(NamedTuple):
    """One sentence, and what to do."""

    text: str
    remedy: str = "mend it"


def of_review(error: str, review: Mapping[str, Any]) -> Complaint:
    """Say what is wrong with an AdmissionReview."""
    found = _ERROR.fullmatch(error)
    if found is None:
        return Complaint(error)
    return _complaint(found["where"].split(".")[1:], found["objection"], review, {})


def of_pod(error: str, pod: Mapping[str, Any], rename: Mapping[str, str]) -> Complaint:
    """Say what is wrong with a Pod; `rename` is what its first fields are called in the object that it is made from."""
    found = _ERROR.fullmatch(error)
    if found is None:
        return Complaint(error)
    return _complaint(found["where"].split(".")[_DEPTH_OF_POD:], found["objection"], pod, rename)


def _complaint(where: Sequence[str], objection: str, document: Any, rename: Mapping[str, str]) -> Complaint:
    found = _OBJECTION.fullmatch(objection)
    what, path = (found["what"], found["path"] or "") if found else (objection, "")
    types, missing = _TYPES.match(what), _MISSING.match(what)
    wanted = types["wanted"].split(" | ") if types else []
    field, value = _located(document, where, path, wanted)
    named = _named(field, rename)
    if missing is not None:
        return Complaint(f"{_named([*field, missing['field']], rename)} is missing", "give the whole object")
    if types is None:
        return Complaint(
            _amount(objection, where, document, rename) or (f"{named}: {objection}" if named else objection)
        )
    needed = [one for one in wanted if one != "null"] or wanted
    expected = " or ".join(_WORDS.get(one, one) for one in needed)
    shown = echo.value(value)
    text = f"{named or 'the object'}: {shown}: expected {expected}"
    if "str" in needed and isinstance(value, bool | int | float):
        return Complaint(text, f'quote it: "{shown}"')
    return Complaint(text, "mend its type")


def _amount(objection: str, where: Sequence[str], document: Any, rename: Mapping[str, str]) -> str:
    """Find the amount that a sum over all containers stumbled on; "" where it is not about one."""
    found = _AMOUNT.fullmatch(objection)
    if found is None:
        return ""
    _, spec = _located(document, where, "", ())
    owners = [((field, index), one) for field in _CONTAINERS for index, one in enumerate(spec.get(field) or ())]
    for place, owner in (*owners, ((), spec)):
        for side, amounts in {**(owner.get("resources") or {}), "": owner.get("overhead")}.items():
            amount = (amounts or {}).get(found["name"])
            if amount is not None and repr(str(amount)[:LONGEST_ECHO]) == found["value"]:
                field = ("overhead",) if not side else ("resources", side)
                named = _named([*where, *place, *field, found["name"]], rename)
                return f"{named}: {found['value']}: {found['why']}"
    return ""


def _located(document: Any, where: Sequence[str], path: str, wanted: Sequence[str]) -> tuple[list[str | int], Any]:
    """Return the field that a path leads to, and what stands there; of a map's values, the one that does not fit."""
    field: list[str | int] = []
    for name, index in [*((name, "") for name in where), *_STEP.findall(path)]:
        step: str | int = name
        if index:
            step = _misfit(document, wanted) if index == "..." else int(index)
        field.append(step)
        try:
            document = document[step]
        except (LookupError, TypeError):
            document = None
    return field, document


def _misfit(values: Any, wanted: Sequence[str]) -> str:
    types = tuple(_PYTHON[one] for one in wanted if one in _PYTHON)
    misfits = (
        key
        for key, value in (values.items() if isinstance(values, dict) else ())
        if not isinstance(value, types) or (isinstance(value, bool) and "bool" not in wanted)
    )
    return next(misfits, "*")


def _named(field: Field, rename: Mapping[str, str]) -> str:
    """Return a field as Kubernetes writes it: `spec.tolerations[1].key`, `metadata.labels[app]`."""
    text = ""
    for place, step in enumerate(field):
        if place == 0:
            text = rename.get(str(step), str(step))
        else:
            text += f"[{step}]" if isinstance(step, int) or field[place - 1] in _MAPS else f".{step}"
    return echo.printable(text)
