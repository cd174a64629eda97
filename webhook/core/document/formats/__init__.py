"""Formats of the schema (labels, durations, resources, ...), each with reason and remedy for invalid text."""

from collections.abc import Callable

from jsonschema import FormatChecker

from webhook.core.document.formats import amounts, names, resources
from webhook.core.document.formats.errors import FormatError

__all__ = ["FormatError", "check", "checker", "fits"]

_FORMATS: dict[str, Callable[[str], object]] = {
    "date-time": amounts.date_time,
    "duration": amounts.duration,
    "interval": amounts.interval,
    "window": amounts.window,
    "dns-label": names.dns_label,
    "dns-subdomain": names.dns_subdomain,
    "label-key": names.label_key,
    "label-key-or-empty": names.label_key_or_empty,
    "label-value": names.label_value,
    "namespace-pattern": names.namespace_pattern,
    "name-pattern": names.name_pattern,
    "quota-resource": resources.quota_resource,
    "reason": names.reason,
    "container-resource": resources.container_resource,
}


def check(text: str, name: str) -> None:
    """Check a text against a format. Raises FormatError."""
    _FORMATS[name](text)


def fits(text: str, name: str) -> bool:
    """Return whether a text satisfies a format."""
    try:
        _FORMATS[name](text)
    except FormatError:
        return False
    return True


def checker() -> FormatChecker:
    """Return a checker of only these formats, without the standard ones."""
    made = FormatChecker(formats=())
    for name, judge in _FORMATS.items():
        made.checks(name, raises=FormatError)(_for(str, judge))
    made.checks("factor", raises=FormatError)(_for((str, int, float), amounts.factor))
    made.checks("quantity", raises=FormatError)(_for((str, int, float), amounts.quantity))
    made.checks("percent-or-count", raises=FormatError)(_for((str, int), amounts.percent_or_count))
    return made


def _for(kinds: type | tuple[type, ...], judge: Callable[..., object]) -> Callable[[object], bool]:
    """Skip values of other types, which the schema's `type` reports: one message per mistake."""

    def holds(value: object) -> bool:
        if isinstance(value, kinds) and not isinstance(value, bool):
            judge(value)
        return True

    return holds
