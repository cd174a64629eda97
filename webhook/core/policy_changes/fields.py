"""Changes of single fields: two values of one type compared, entries of lists by what identifies them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.kubernetes.types import Affinity, LabelSelector
from webhook.core.policy.model import Pool, SlaClass
from webhook.core.policy_fields import CustomWorkload, Rule, Schedule, TopologyEntry, Variant, Window

_ATOMIC = (LabelSelector, Affinity)
"""Types that are compared as a whole: a part of a selector means nothing alone."""
_SECOND_US = 1_000_000
_EMPTY: tuple[Any, ...] = (None, False, "", [], {})


class FieldChange(Struct, frozen=True):
    """A changed field, both values as text, "" if absent. `change`: added, removed, raised, lowered or changed."""

    path: str
    before: str
    after: str
    change: str

    def __str__(self) -> str:
        if self.change in {"added", "removed"}:
            return f"{self.path}: {self.change}: {self.before or self.after}"
        word = f" ({self.change})" if self.change != "changed" else ""
        return f"{self.path}: {self.before} -> {self.after}{word}"


def compare_fields(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Yield the fields that differ, in their order. Equal amounts such as 60s and 1m do not differ."""
    if before == after:
        return
    if isinstance(before, Struct) and type(before) is type(after) and not isinstance(before, _ATOMIC):
        for name, attribute in zip(before.__struct_encode_fields__, before.__struct_fields__, strict=True):
            where = f"{path}.{name}" if path else name
            yield from compare_fields(getattr(before, attribute), getattr(after, attribute), where)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            where = f"{path}[{key}]" if not key.isalnum() else f"{path}.{key}"
            yield from compare_fields(before.get(key), after.get(key), where)
    elif isinstance(before, tuple) and isinstance(after, tuple):
        yield from _compare_lists(before, after, path)
    else:
        yield FieldChange(path, format_value(before), format_value(after), _name_change(before, after))


def _compare_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[FieldChange]:
    known = {_identify(entry): entry for entry in before}
    new = {_identify(entry): entry for entry in after}
    for key in dict.fromkeys((*known, *new)):
        yield from compare_fields(known.get(key), new.get(key), f"{path}[{key}]")
    if [*known] != [*new] and known.keys() == new.keys():
        yield FieldChange(path, ", ".join(known), ", ".join(new), "changed")


def _identify(entry: Any) -> str:
    """Return what identifies an entry of a list; the whole entry if it has no name."""
    if isinstance(entry, Window):
        return (
            f"{entry.window.us // _SECOND_US}s"
            if entry.window.us % (60 * _SECOND_US)
            else _format_minutes(entry.window)
        )
    if isinstance(entry, TopologyEntry):
        return entry.label if entry.preferred_weight is None else f"{entry.label}, preferred"
    if isinstance(entry, CustomWorkload):
        return f"{entry.kind}.{entry.api_group}"
    if isinstance(entry, SlaClass | Pool | Rule | Schedule | Variant):
        return entry.name
    return format_value(entry)


def _format_minutes(window: Duration) -> str:
    minutes = window.us // (60 * _SECOND_US)
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def _name_change(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    both = before, after
    if all(isinstance(value, Quantity | Duration) for value in both):
        return "raised" if before.value < after.value else "lowered"
    if all(isinstance(value, int) and not isinstance(value, bool) for value in both):
        return "raised" if before < after else "lowered"
    return "changed"


def format_value(value: Any) -> str:
    """Return a value in one line: text as it is, others as JSON, without absent fields."""
    plain = _strip_defaults(value)
    if plain is None:
        return ""
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _strip_defaults(value: Any) -> Any:
    """Return a value without empty defaults. Other empty lists are kept: in `allow` they forbid all."""
    if isinstance(value, Struct):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        plain = {field.encode_name: (_strip_defaults(inner), inner == _read_default(field)) for field, inner in fields}
        return {name: inner for name, (inner, is_default) in plain.items() if not (is_default and inner in _EMPTY)}
    if isinstance(value, Mapping):
        return {key: _strip_defaults(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_strip_defaults(item) for item in value]
    return msgspec.to_builtins(value, enc_hook=str)


def _read_default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
