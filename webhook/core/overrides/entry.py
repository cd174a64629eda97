"""Override: one entry of the overrides document, with the changes to a service, their end and the reason."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from webhook.core.breaker import BreakerOwner
from webhook.core.kubernetes.quantity import Duration, Quantity, convert_amount
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.kubernetes.types import format_of
from webhook.core.policy.targets import Target, TargetPods, TargetWorkload
from webhook.core.policy_fields import Choice, Mode
from webhook.core.policy_fields.quota import WINDOWS_MAX, Hard
from webhook.core.quota import canonicalize

REASON_CHARACTERS_MAX = 500
"""Characters: enough for an incident and a sentence, and short enough for a log line."""

RELEASED_PODS_MAX = 100
_YAML_WIDTH = 1 << 20

Moment = Annotated[str, format_of("date-time")]
WindowLength = Annotated[Duration, format_of("window")]


class ManualBreakerState(Choice):
    """Manual state of a breaker; Automatic: no manual state."""

    FORCED_OPEN = "ForcedOpen"
    FORCED_CLOSED = "ForcedClosed"
    AUTOMATIC = "Automatic"


class QueueState(Choice):
    """Manual state of a queue; Running: not paused."""

    PAUSED = "Paused"
    RUNNING = "Running"


class ReleasedPod(Struct, frozen=True):
    """A waiting Pod to release regardless of limits, with its uid: a later Pod may have the same name."""

    namespace: Annotated[str, format_of("dns-label")]
    name: Annotated[str, format_of("dns-subdomain")]
    uid: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 128})]


class PartialModes(Struct, frozen=True):
    """Modes that replace the service's; None keeps its own."""

    placement: Mode | None = None
    resources: Mode | None = None
    quota: Mode | None = None
    breaker: Mode | None = None
    scheduling: Mode | None = None
    rules: Mode | None = None
    """Of all rules that are not Disabled."""


class Grant(Struct, frozen=True):
    """An amount added to `hard` of one of the service's own windows."""

    window: WindowLength
    hard: Hard


class QuotaReset(Struct, frozen=True):
    """Removal of the charges before `at` from all of the service's own windows, or from one."""

    at: Moment
    window: WindowLength | None = None

    @property
    def at_us(self) -> int:
        return parse_microseconds(self.at)


class Override(Struct, frozen=True, rename="camel"):
    """Changes to one service, live until `until`. `quotaFactor` scales only the service's own windows.

    With `workload` or `pods` it is an exception: it changes the service for these Pods only. With `variant` it is about
    the breaker of this variant of the service's shares.
    """

    service: Annotated[str, format_of("dns-label")]
    until: Moment
    reason: Annotated[str, Meta(extra_json_schema={"format": "reason", "maxLength": REASON_CHARACTERS_MAX})]
    workload: TargetWorkload | None = None
    pods: TargetPods | None = None
    variant: Annotated[str, format_of("dns-label")] | None = None
    quota_factor: Annotated[Quantity, format_of("factor")] | None = None
    modes: PartialModes | None = None
    grant: Annotated[tuple[Grant, ...], Meta(extra_json_schema={"maxItems": WINDOWS_MAX})] = ()
    quota_reset: QuotaReset | None = None
    breaker: ManualBreakerState | None = None
    reset_at: Moment | None = None
    queue: QueueState | None = None
    release_pods: Annotated[tuple[ReleasedPod, ...], Meta(extra_json_schema={"maxItems": RELEASED_PODS_MAX})] = ()
    by: Annotated[str, Meta(extra_json_schema={"format": "reason", "maxLength": REASON_CHARACTERS_MAX})] | None = None
    """The author, as known to the command that wrote the entry."""

    @property
    def until_us(self) -> int:
        return parse_microseconds(self.until)

    @property
    def target(self) -> Target | None:
        """The Pods that an exception is about; None for the whole service."""
        return self.workload or self.pods

    @property
    def target_key(self) -> str:
        """The target or the variant as text, equal for equal ones; "" for the whole service."""
        about = self.target or self.variant
        return "" if about is None else msgspec.json.encode(about, order="deterministic").decode()

    @property
    def breaker_name(self) -> str:
        """The name of the plan of the breaker that `breaker` and `resetAt` are about."""
        return BreakerOwner(self.service, self.variant or "").name

    def is_live(self, now_us: int) -> bool:
        """Return whether the entry is in force: the one test of its end, for servers, commands and checks."""
        return now_us < self.until_us

    @property
    def things(self) -> tuple[str, ...]:
        """Names of the things that it sets. Live entries of one service and target must set different things."""
        found = ["quotaFactor"] if self.quota_factor is not None else []
        found += [f"modes.{name}" for name, mode in (asdict(self.modes) if self.modes else {}).items() if mode]
        found += [
            f"grant of {canonicalize(name)} in {_format_seconds(grant.window)}"
            for grant in self.grant
            for name in grant.hard
        ]
        if self.quota_reset is not None:
            window = self.quota_reset.window
            found.append("quotaReset" if window is None else f"quotaReset of {_format_seconds(window)}")
        found += ["breaker"] if self.breaker is not None else []
        found += ["queue"] if self.queue is not None else []
        found += [f"releasePods of {pod.uid}" for pod in self.release_pods]
        return (*found, "resetAt") if self.reset_at is not None else tuple(found)

    @property
    def reset_at_us(self) -> int | None:
        """Time of the breaker's reset, None without one."""
        return None if self.reset_at is None else parse_microseconds(self.reset_at)

    def encode_plain(self) -> dict[str, Any]:
        """Return the entry as written, without absent fields."""
        made: dict[str, Any] = _drop_absent(msgspec.to_builtins(self, enc_hook=str))
        factor = str(self.quota_factor)
        return made | {"quotaFactor": int(factor)} if factor.isdecimal() else made

    def __str__(self) -> str:
        """Return one line with changes, end, reason and author."""
        metadata = {"service", "until", "reason", "by"}
        changes = {key: value for key, value in self.encode_plain().items() if key not in metadata}
        text: str = yaml.safe_dump(
            changes, default_flow_style=True, sort_keys=False, allow_unicode=True, width=_YAML_WIDTH
        )
        by = f" (by {self.by})" if self.by else ""
        return f"{text.strip()[1:-1]} until {self.until}: {self.reason}{by}"


def encode_entries(entries: Sequence[Override]) -> str:
    """Return the entries that change the service, as a list in JSON without absent fields; "" if none does.

    Resets and releases are left out: they change counters and single Pods.
    """
    states = [replace(entry, quota_reset=None, reset_at=None, release_pods=()) for entry in entries]
    lasting = [entry.encode_plain() for entry in states if entry.things]
    return msgspec.json.encode(lasting).decode() if lasting else ""


def decode_entries(text: bytes) -> tuple[Override, ...]:
    """Decode a list of entries from JSON. msgspec.MsgspecError: other data."""
    return msgspec.json.decode(text, type=tuple[Override, ...], dec_hook=convert_amount)


def _format_seconds(window: Duration) -> str:
    """Format a window's length in seconds, so that 1m and 60s are the same."""
    return f"{window.us // 1_000_000}s"


def _drop_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_absent(inner) for key, inner in value.items() if inner is not None and inner != ()}
    return [_drop_absent(inner) for inner in value] if isinstance(value, tuple) else value
