"""Field types that stanzas share: bounded numbers and names, CamelCase choices, durations with defaults, modes."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, field

from webhook.core.kubernetes.quantity import Duration, Number
from webhook.core.kubernetes.types import format_of

Count = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 1_000_000})]
Percent = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": 100})]
NonEmpty = Meta(extra_json_schema={"minItems": 1})
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 253})]
Interval = Annotated[Duration, format_of("interval")]


def describe(text: str) -> Meta:
    """Annotate a field with its description in the policy's schema, which editors show."""
    return Meta(description=text)


def default_duration(text: str) -> Any:
    """Declare a duration's default, as a factory: msgspec's schema cannot show defaults of custom types."""
    return field(default_factory=partial(Duration.parse, text))


def default_number(value: float) -> Any:
    """Declare a number's default, as a factory, as for durations."""
    return field(default_factory=partial(Number, value))


class Choice(StrEnum):
    """An enumeration of CamelCase words of the document."""


class Mode(Choice):
    """Enforce denies; Warn warns; Audit only counts; Disabled skips the check."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    AUDIT = "Audit"
    DISABLED = "Disabled"
