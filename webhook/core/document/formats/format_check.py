"""Check of a value by the name of its format, with the reason and the remedy for an invalid value."""

from collections.abc import Callable
from functools import lru_cache

from webhook.core.document.formats import amounts, names
from webhook.core.document.formats.names import FormatError

_FORMATS: dict[str, Callable[[str], object]] = {
    "date-time": amounts.date_time,
    "duration": amounts.duration,
    "elapsed": amounts.elapsed,
    "interval": amounts.interval,
    "window": amounts.window,
    "dns-label": names.dns_label,
    "dns-subdomain": names.dns_subdomain,
    "class-pattern": names.class_pattern,
    "http-url": names.http_url,
    "label-key": names.label_key,
    "label-key-or-empty": names.label_key_or_empty,
    "label-value": names.label_value,
    "namespace-pattern": names.namespace_pattern,
    "name-pattern": names.name_pattern,
    "pod-metadata-key": names.pod_metadata_key,
    "percent": amounts.percent,
    "quota-resource": names.quota_resource,
    "reason": names.reason,
    "container-resource": names.container_resource,
}
_OF_NUMBERS_TOO: dict[str, tuple[tuple[type, ...], Callable[..., object]]] = {
    "factor": ((str, int, float), amounts.factor),
    "quantity": ((str, int, float), amounts.quantity),
    "percent-or-count": ((str, int), amounts.percent_or_count),
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


def fault(value: object, name: str) -> FormatError | None:
    """Return why a value violates a format; None for a value of another type, which the schema's `type` reports."""
    try:
        if isinstance(value, str):
            _check_text(value, name)
        elif name in _OF_NUMBERS_TOO:
            kinds, judge = _OF_NUMBERS_TOO[name]
            if isinstance(value, kinds) and not isinstance(value, bool):
                judge(value)
    except FormatError as error:
        return error
    return None


@lru_cache(maxsize=4096)
def _check_text(text: str, name: str) -> None:
    """Check a text against any format. Services mostly share a few texts: each is parsed once."""
    judge = _FORMATS[name] if name in _FORMATS else _OF_NUMBERS_TOO[name][1]
    judge(text)
