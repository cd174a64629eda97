"""Decoder errors as messages for users: the field, its value, and what was expected."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from webhook.core.container_resources.container_plan import NAME_CHARACTERS_MAX
from webhook.core.kubernetes.pod_requests import shorten
from webhook.core.plain_text import escape_line, quote_value

_ERROR = re.compile(r"(?P<where>AdmissionReview(?:\.\w+)*): (?P<objection>.*)", re.DOTALL)
_OBJECTION = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?", re.DOTALL)
_TYPES = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `[^`]*`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_AMOUNT = re.compile(
    r"(?:the template's )?resources: (?:container (?P<container>.*?): "
    r"resources\.(?P<side>requests|limits)\[(?P<name>.+?)\]"
    r"|(?:the Pod as a whole: )?(?P<summed>[^ ]+)): (?P<value>'.*'|\".*\"): (?P<why>[^:]*)(?:: (?P<remedy>.*))?",
    re.DOTALL,
)
_AMOUNT_EXAMPLE = "write a number with an optional suffix, such as 500m, 4 or 16Gi"
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


class DecodeError(NamedTuple):
    """An error message and its remedy."""

    text: str
    remedy: str = "fix it"


def explain_review_error(error: str, review: Mapping[str, Any]) -> DecodeError:
    """Return the error of an AdmissionReview."""
    found = _ERROR.fullmatch(error)
    if found is None:
        return DecodeError(error)
    return _explain(found["where"].split(".")[1:], found["objection"], review, {})


def explain_pod_error(error: str, pod: Mapping[str, Any], rename: Mapping[str, str]) -> DecodeError:
    """Return the error of a Pod; `rename` maps its first fields to those of the object that it is created from."""
    found = _ERROR.fullmatch(error)
    if found is None:
        return DecodeError(error)
    return _explain(found["where"].split(".")[_DEPTH_OF_POD:], found["objection"], pod, rename)


def _explain(where: Sequence[str], objection: str, document: Any, rename: Mapping[str, str]) -> DecodeError:
    found = _OBJECTION.fullmatch(objection)
    what, path = (found["what"], found["path"] or "") if found else (objection, "")
    types, missing = _TYPES.match(what), _MISSING.match(what)
    wanted = types["wanted"].split(" | ") if types else []
    field, value = _locate(document, where, path, wanted)
    named = _format_field(field, rename)
    if missing is not None:
        return DecodeError(f"{_format_field([*field, missing['field']], rename)} is missing", "give the whole object")
    if types is None:
        plain = DecodeError(f"{named}: {objection}" if named else objection)
        return _explain_amount(objection, where, document, rename) or plain
    needed = [name for name in wanted if name != "null"] or wanted
    shown = quote_value(value)
    if {"int", "float", "str"} <= set(needed):
        return DecodeError(f"{named}: {shown}: expected an amount", _AMOUNT_EXAMPLE)
    expected = " or ".join(_WORDS.get(name, name) for name in needed)
    text = f"{named or 'the object'}: {shown}: expected {expected}"
    if "str" in needed and isinstance(value, bool | int | float):
        return DecodeError(text, f'quote it: "{shown}"')
    return DecodeError(text, "fix its type")


def _explain_amount(
    objection: str, where: Sequence[str], document: Any, rename: Mapping[str, str]
) -> DecodeError | None:
    """Return the error of an amount that could not be parsed; None for any other error."""
    found = _AMOUNT.fullmatch(objection)
    if found is None:
        return None
    remedy = found["remedy"] or "write a number from 0"
    _, spec = _locate(document, where, "", ())
    owners = [
        ((field, index), container) for field in _CONTAINERS for index, container in enumerate(spec.get(field) or ())
    ]
    for place, owner in (*owners, ((), spec)):
        for side, amounts in {**(owner.get("resources") or {}), "": owner.get("overhead")}.items():
            field = ("overhead",) if not side else ("resources", side)
            name = found["name"] or found["summed"]
            is_it = found["side"] is None or (
                side == found["side"] and str(owner.get("name"))[:NAME_CHARACTERS_MAX] == found["container"]
            )
            amount = (amounts or {}).get(name)
            if is_it and amount is not None and repr(shorten(str(amount))) == found["value"]:
                named = _format_field([*where, *place, *field, name], rename)
                return DecodeError(f"{named}: {found['value']}: {found['why']}", remedy)
    return None


def _locate(document: Any, where: Sequence[str], path: str, wanted: Sequence[str]) -> tuple[list[str | int], Any]:
    """Return the field at a path and its value; in a map, the first value of a wrong type."""
    field: list[str | int] = []
    for name, index in [*((name, "") for name in where), *_STEP.findall(path)]:
        step: str | int = name
        if index:
            step = _find_misfit(document, wanted) if index == "..." else int(index)
        field.append(step)
        try:
            document = document[step]
        except (LookupError, TypeError):
            document = None
    return field, document


def _find_misfit(values: Any, wanted: Sequence[str]) -> str:
    types = tuple(_PYTHON[name] for name in wanted if name in _PYTHON)
    misfits = (
        key
        for key, value in (values.items() if isinstance(values, dict) else ())
        if not isinstance(value, types) or (isinstance(value, bool) and "bool" not in wanted)
    )
    return next(misfits, "*")


def _format_field(field: Field, rename: Mapping[str, str]) -> str:
    """Return a field as Kubernetes writes it: `spec.tolerations[1].key`, `metadata.labels[app]`."""
    text = ""
    for place, step in enumerate(field):
        if place == 0:
            text = rename.get(str(step), str(step))
        else:
            text += f"[{step}]" if isinstance(step, int) or field[place - 1] in _MAPS else f".{step}"
    return escape_line(text)
