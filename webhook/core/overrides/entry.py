"""One entry of the overrides' document as frozen types: what is done to a service, until when, and why."""

from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct

from webhook.core.kubernetes import format_of
from webhook.core.moments import microseconds
from webhook.core.quantity import Duration, Quantity
from webhook.core.stanzas import Choice, Mode
from webhook.core.stanzas.quota import MOST_WINDOWS, Hard

MOST_REASON = 500
"""Characters: enough for an incident and a sentence, and a line of a log holds it."""

_WIDEST = 1 << 20

Moment = Annotated[str, format_of("date-time")]
WindowLength = Annotated[Duration, format_of("window")]


class Hand(Choice):
    """What is done to a breaker by hand; Automatic: nothing, it goes by itself."""

    FORCED_OPEN = "ForcedOpen"
    FORCED_CLOSED = "ForcedClosed"
    AUTOMATIC = "Automatic"


class PartialModes(Struct, frozen=True):
    """Modes that hold instead of the service's own; None leaves its own."""

    placement: Mode | None = None
    resources: Mode | None = None
    quota: Mode | None = None
    breaker: Mode | None = None


class Grant(Struct, frozen=True):
    """Room beside `hard` of one of the service's own windows."""

    window: WindowLength
    hard: Hard


class QuotaReset(Struct, frozen=True):
    """What the service's own windows counted before `at` is forgotten, in all of them or in one."""

    at: Moment
    window: WindowLength | None = None

    @property
    def at_us(self) -> int:
        return microseconds(self.at)


class Entry(Struct, frozen=True, rename="camel"):
    """What is done to one service; it is live until `until`. `quotaFactor` scales its own windows, nothing else."""

    service: Annotated[str, format_of("dns-label")]
    until: Moment
    reason: Annotated[str, Meta(extra_json_schema={"format": "reason", "maxLength": MOST_REASON})]
    quota_factor: Annotated[Quantity, format_of("factor")] | None = None
    modes: PartialModes | None = None
    grant: Annotated[tuple[Grant, ...], Meta(extra_json_schema={"maxItems": MOST_WINDOWS})] = ()
    quota_reset: QuotaReset | None = None
    breaker: Hand | None = None
    reset_at: Moment | None = None

    @property
    def until_us(self) -> int:
        return microseconds(self.until)

    @property
    def is_of_breaker_alone(self) -> bool:
        """Whether it does nothing but what `podgate breaker` does."""
        return self.quota_factor is None and self.modes is None and not self.grant and self.quota_reset is None

    @property
    def reset_at_us(self) -> int | None:
        """When the breaker is to begin anew, None where it is not."""
        return None if self.reset_at is None else microseconds(self.reset_at)

    def plain(self) -> dict[str, Any]:
        """Return it as it is written, without what is absent."""
        made: dict[str, Any] = _without_absent(msgspec.to_builtins(self, enc_hook=str))
        factor = str(self.quota_factor)
        return made | {"quotaFactor": int(factor)} if factor.isdecimal() else made

    def __str__(self) -> str:
        """Say what it does, in one line."""
        done = {key: value for key, value in self.plain().items() if key not in {"service", "until", "reason"}}
        text: str = yaml.safe_dump(done, default_flow_style=True, sort_keys=False, allow_unicode=True, width=_WIDEST)
        return f"{text.strip()[1:-1]} until {self.until}: {self.reason}"


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_absent(inner) for key, inner in value.items() if inner is not None and inner != ()}
    return [_without_absent(inner) for inner in value] if isinstance(value, tuple) else value
