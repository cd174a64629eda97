"""Check of a value by the name of its format, with the reason and the remedy for an invalid value."""

from collections.abc import Callable
from functools import lru_cache

from webhook.core.document.formats import amounts, names
from webhook.core.document.formats.names import FormatError

_FORMATS: dict[str, Callable[[str], object]] = {
    "date-time": amounts.check_date_time,
    "duration": amounts.parse_duration,
    "elapsed": amounts.check_elapsed,
    "interval": amounts.check_interval,
    "window": amounts.check_window,
    "api-group": names.check_api_group,
    "dns-label": names.check_dns_label,
    "dns-subdomain": names.check_dns_subdomain,
    "class-pattern": names.check_class_pattern,
    "http-url": names.check_http_url,
    "kind": names.check_kind,
    "label-key": names.check_label_key,
    "label-key-or-empty": names.check_label_key_or_empty,
    "label-value": names.check_label_value,
    "namespace-pattern": names.check_namespace_pattern,
    "name-pattern": names.check_name_pattern,
    "pod-metadata-key": names.check_pod_metadata_key,
    "percent": amounts.check_percent,
    "quota-per": names.check_quota_per,
    "quota-resource": names.check_quota_resource,
    "reason": names.check_reason,
    "template-path": names.check_template_path,
    "time-of-day": amounts.check_time_of_day,
    "time-zone": amounts.check_time_zone,
    "container-resource": names.check_container_resource,
    "removable-limit": names.check_removable_limit,
}
_NUMBER_FORMATS: dict[str, tuple[tuple[type, ...], Callable[..., object]]] = {
    "factor": ((str, int, float), amounts.check_factor),
    "quantity": ((str, int, float), amounts.check_quantity),
    "percent-or-count": ((str, int), amounts.check_percent_or_count),
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


def find_fault(value: object, name: str) -> FormatError | None:
    """Return why a value violates a format; None for a value of another type, which the schema's `type` reports."""
    try:
        if isinstance(value, str):
            _check_text(value, name)
        elif name in _NUMBER_FORMATS:
            kinds, judge = _NUMBER_FORMATS[name]
            if isinstance(value, kinds) and not isinstance(value, bool):
                judge(value)
    except FormatError as error:
        return error
    return None


@lru_cache(maxsize=4096)
def _check_text(text: str, name: str) -> None:
    """Check a text against any format. Services mostly share a few texts: each is parsed once."""
    judge = _FORMATS[name] if name in _FORMATS else _NUMBER_FORMATS[name][1]
    judge(text)
