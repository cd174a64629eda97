"""Formats of the schema (labels, durations, resources, ...), each with reason and remedy for invalid text."""

import re
from collections.abc import Callable
from fractions import Fraction

from jsonschema import FormatChecker

from webhook.core.document.yaml.problems import close_to
from webhook.core.kubernetes.quantity import Duration, quantity_value
from webhook.core.kubernetes.timestamps import microseconds

_LONGEST_US = 720 * 3_600_000_000  # 30 days, the longest window
_INTERVAL_US = (100_000, 3_600_000_000)
_SECOND_US = 1_000_000
_LARGEST_AMOUNT = 2**63 - 1
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9]{0,61}\*")
_PERCENT = re.compile(r"(0|[1-9]\d?|100)%")
_SUBDOMAIN_LENGTH = 253
_FACTOR = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_LARGEST_FACTOR = 1000
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
QUOTA_RESOURCES = (
    "pods",
    *_COMPUTE,
    *(f"requests.{name}" for name in _COMPUTE),
    *(f"limits.{name}" for name in _COMPUTE),
)


class FormatError(ValueError):
    """A text violates a format: reason and remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def _must(holds: object, reason: str, remedy: str) -> None:
    if not holds:
        raise FormatError(reason, remedy)


def _duration(text: str, such_as: str = "500ms, 30s, 5m or 24h") -> int:
    """Return the microseconds; `such_as` are examples for the field."""
    try:
        us = Duration.parse(text).us
    except ValueError as error:
        reason, _, remedy = str(error).partition(": ")
        remedy = remedy if "hours" in remedy else f"write a number with a unit, such as {such_as}"
        raise FormatError(reason, remedy) from None
    _must(us <= _LONGEST_US, "longer than 720h", "write at most 720h")
    return us


def _interval(text: str) -> None:
    us = _duration(text, "500ms, 1s or 30s")
    low, high = _INTERVAL_US
    _must(low <= us <= high, "an interval is 100ms to 1h", "write a duration such as 1s or 30s")


def _window(text: str) -> None:
    us = _duration(text, "30s, 5m or 24h")
    _must(us >= _SECOND_US, "a window is 1s to 720h", "write at least 1s")
    _must(us % _SECOND_US == 0, "a window is a whole number of seconds", "round it to seconds, such as 90s")


def _quantity(value: object) -> None:
    try:
        amount = quantity_value(str(value))
    except ValueError as error:
        reason, _, remedy = str(error).partition(": ")
        raise FormatError(reason, remedy or "write a number from 0, such as 500m, 4 or 16Gi") from None
    _must(amount <= _LARGEST_AMOUNT, "above 2^63 - 1, the largest quantity in Kubernetes", "write a smaller amount")


def _is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_LENGTH and all(_LABEL.fullmatch(part) for part in text.split("."))


def _dns_label(text: str) -> None:
    _must(
        _LABEL.fullmatch(text),
        "not a DNS-1123 label",
        "use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends",
    )


def _dns_subdomain(text: str) -> None:
    _must(_is_subdomain(text), "not a DNS-1123 name", "use a-z, 0-9, - and ., with a letter or digit at both ends")


def _label_key(text: str) -> None:
    prefix, slash, name = text.rpartition("/")
    remedy = "write NAME or DOMAIN/NAME, such as disk-type or example.com/disk-type"
    _must(_NAME.fullmatch(name), "not a label key", remedy)
    _must(not slash or _is_subdomain(prefix), "not a label key: its prefix is not a DNS name", remedy)


def _label_key_or_empty(text: str) -> None:
    if text:
        _label_key(text)


def _label_value(text: str) -> None:
    remedy = "use at most 63 of A-Z, a-z, 0-9, -, _ and ., with a letter or digit at both ends"
    _must(not text or _NAME.fullmatch(text), "not a label value", remedy)


def _namespace_pattern(text: str) -> None:
    _must(text != "*", "* alone matches every namespace", "name them, or write `anyNamespace: true` in `match` instead")
    remedy = "write a namespace's name, or the beginning of one and a single * at the end"
    _must(
        _LABEL.fullmatch(text) or _PREFIX.fullmatch(text), "not a namespace, nor a prefix with one trailing *", remedy
    )


def _name_pattern(text: str) -> None:
    remedy = "write a container's name, or the beginning of one and a single * at the end"
    _must(
        _LABEL.fullmatch(text) or _PREFIX.fullmatch(text), "not a container, nor a prefix with one trailing *", remedy
    )


def _extended(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(slash) and _is_subdomain(prefix) and _NAME.fullmatch(name) is not None


def _quota_resource(text: str) -> None:
    bare = text.removeprefix("requests.")
    if text in QUOTA_RESOURCES or (bare.startswith("hugepages-") and _NAME.fullmatch(bare)):
        return
    if text.startswith("requests.") and _extended(bare):
        return
    if _extended(text) and not text.startswith(("limits.", "count/")):
        raise FormatError("an extended resource is counted by its requests", f"write requests.{text}")
    meant = close_to(text, QUOTA_RESOURCES)
    known = f"use {', '.join(QUOTA_RESOURCES)}, hugepages-SIZE or requests.DOMAIN/NAME"
    raise FormatError("not a resource of Pods", f"did you mean {meant}?" if meant else known)


def _container_resource(text: str) -> None:
    if text in _COMPUTE or (text.startswith("hugepages-") and _NAME.fullmatch(text)) or _extended(text):
        return
    meant = close_to(text.removeprefix("requests.").removeprefix("limits."), _COMPUTE)
    known = f"use {', '.join(_COMPUTE)}, hugepages-SIZE or DOMAIN/NAME"
    raise FormatError("not a container's resource", f"did you mean {meant}?" if meant else known)


def _percent_or_count(value: str | int) -> None:
    remedy = "write a count from 0, or a percentage from 0% to 100%"
    _must(
        value >= 0 if isinstance(value, int) else _PERCENT.fullmatch(value), "neither a count nor a percentage", remedy
    )


def _date_time(text: str) -> None:
    try:
        microseconds(text)
    except ValueError as error:
        reason, _, remedy = str(error).partition(": ")
        raise FormatError(reason, remedy) from None


def _reason(text: str) -> None:
    _must(text.strip(), "empty", "write why, such as INC-1234")
    _must(text.isprintable(), "not plain text on one line", "write it on one line, without control characters")


def _factor(value: object) -> None:
    _must(
        _FACTOR.fullmatch(str(value)) and 0 < Fraction(str(value)) <= _LARGEST_FACTOR,
        f"not a number above 0 and up to {_LARGEST_FACTOR}",
        "write one such as 0.5, 1.5 or 3",
    )


_FORMATS: dict[str, Callable[[str], object]] = {
    "date-time": _date_time,
    "duration": _duration,
    "interval": _interval,
    "window": _window,
    "dns-label": _dns_label,
    "dns-subdomain": _dns_subdomain,
    "label-key": _label_key,
    "label-key-or-empty": _label_key_or_empty,
    "label-value": _label_value,
    "namespace-pattern": _namespace_pattern,
    "name-pattern": _name_pattern,
    "quota-resource": _quota_resource,
    "reason": _reason,
    "container-resource": _container_resource,
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
    made.checks("factor", raises=FormatError)(_for((str, int, float), _factor))
    made.checks("quantity", raises=FormatError)(_for((str, int, float), _quantity))
    made.checks("percent-or-count", raises=FormatError)(_for((str, int), _percent_or_count))
    return made


def _for(kinds: type | tuple[type, ...], judge: Callable[..., object]) -> Callable[[object], bool]:
    """Skip values of other types, which the schema's `type` reports: one message per mistake."""

    def holds(value: object) -> bool:
        if isinstance(value, kinds) and not isinstance(value, bool):
            judge(value)
        return True

    return holds
