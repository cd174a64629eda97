"""Checks of the policy and the overrides: present, valid, in force, and not forced or open for long."""

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Any

import msgspec

from webhook.core.breaker import BreakerOwner
from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.repair_command import build_policy_command
from webhook.core.document import DocumentError, configmap
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.overrides import Override
from webhook.core.overrides.loading import OverridesDocument, load
from webhook.core.policy.targets import format_options

SECTION = Section("policy and overrides")
_POLICY = f"ConfigMap {configmap.NAMESPACE}/{configmap.NAME}"
_OVERRIDES = f"ConfigMap {configmap.NAMESPACE}/{configmap.OVERRIDES}"
_OPEN_US, _FORCED_SECONDS, _ENDED_US = 3_600_000_000, 86_400, 86_400_000_000
_LONG_US = 7 * 86_400_000_000
_NAMING = ("service", "workload", "pods", "variant")
_REMOVE_ALONE = (
    f"kubectl edit configmap {configmap.OVERRIDES} -n {configmap.NAMESPACE}: correct or remove it;"
    " --clear would also end others in force"
)
_CREATE = "create it from your file, or as it was last in force"
_EDIT = (
    f"kubectl edit configmap {configmap.NAME} -n {configmap.NAMESPACE}: correct it; the last good policy is in force"
)


@SECTION.check("policy-missing", "the policy exists", "policy_map")
def policy_missing(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.policy_map is None:
        yield Observation(_POLICY, "metadata.name", "absent", _CREATE, build_policy_command())


@SECTION.check("policy-invalid", "it is valid", "policy_map")
def policy_invalid(facts: ClusterFacts) -> Iterator[Observation]:
    for problem in facts.policy_problems:
        yield Observation(_POLICY, f"data[{configmap.KEY}]", problem, _EDIT)


@SECTION.check("policy-not-in-force", "the server applies it", "policy", "status")
def policy_not_in_force(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.rollout.get("candidate"):
        return  # the live policy is the candidate of a rollout, and comes into force in steps
    if facts.policy is not None and facts.status["policy"]["hash"] != facts.policy.hash:
        value = f"{facts.status['policy']['hash'] or 'none'}, the live policy is {facts.policy.hash}"
        remedy = "see watches and policy errors in podgate status; a server with --policy FILE reads no ConfigMap"
        if waits_for := facts.rollout.get("waitsFor"):
            remedy = f"its rollout is held: {waits_for}"
        yield Observation(facts.server, "status.policy.hash", value, remedy)


@SECTION.check("overrides-invalid", "overrides are valid", "overrides_map")
def overrides_invalid(facts: ClusterFacts) -> Iterator[Observation]:
    try:
        problems = _load_overrides(facts).find_clashes(facts.at_us)
    except DocumentError as error:
        problems = tuple(error.problems)
    for problem in problems:
        remedy = f"kubectl edit configmap {configmap.OVERRIDES} -n {configmap.NAMESPACE}: no override can be written"
        yield Observation(_OVERRIDES, f"data[{configmap.OVERRIDES_KEY}]", str(problem), remedy)


@SECTION.check("overrides-ended", "ended ones are removed", "overrides_map", severity=Severity.WARNING)
def overrides_ended(facts: ClusterFacts) -> Iterator[Observation]:
    entries = _load_valid_overrides(facts).entries
    for entry in entries:
        if facts.at_us - entry.until_us > _ENDED_US:
            value = f"ended {format_rfc3339(entry.until_us)}"
            remedy, command = "the next override that is written removes it", ""
            if not _list_others(entry, entries, facts.at_us):
                remedy, command = "remove it", _build_clear_command(entry)
            yield Observation(_OVERRIDES, f"entry of {entry.service}", value, remedy, command)


@SECTION.check("override-unknown", "each is of a service", "overrides_map", "policy", severity=Severity.WARNING)
def override_unknown(facts: ClusterFacts) -> Iterator[Observation]:
    names = {service.name for service in facts.policy.policy.services} if facts.policy is not None else set[str]()
    for entry in _load_valid_overrides(facts).entries if names else ():
        if entry.is_live(facts.at_us) and entry.service not in names:
            value, remedy = (
                f"{entry.service}: the policy has no such service",
                "write it for a service, and remove it here",
            )
            yield Observation(_OVERRIDES, "service", value, remedy, _build_clear_command(entry))


@SECTION.check("override-idle", "each has an effect", "status", severity=Severity.WARNING)
def override_idle(facts: ClusterFacts) -> Iterator[Observation]:
    shown = facts.status["overrides"]["entries"]
    entries = [_read_entry(entry) for entry in shown]  # those in force
    for number, entry in enumerate(entries):
        others = [other for other in (*entries[:number], *entries[number + 1 :]) if _is_cleared_with(entry, other)]
        remedy, command = ("correct or remove it", _build_clear_command(entry)) if not others else (_REMOVE_ALONE, "")
        for idle in shown[number]["withoutEffect"]:
            yield Observation(_OVERRIDES, f"entry of {entry.service}", idle, remedy, command)


@SECTION.check("exception-long", "no exception lasts for weeks", "overrides_map", severity=Severity.WARNING)
def exception_long(facts: ClusterFacts) -> Iterator[Observation]:
    entries = _load_valid_overrides(facts).entries
    for entry in entries:
        if entry.target is not None and entry.is_live(facts.at_us + _LONG_US):
            value = f"until {entry.until}: {entry.reason}"
            remedy, command = "write what its Pods need into the policy, as a service of their own", ""
            if _list_others(entry, entries, facts.at_us):
                remedy = f"{remedy}; then {_REMOVE_ALONE}"
            else:
                remedy, command = f"{remedy}, and end it", _build_clear_command(entry)
            field = f"entry of {entry.service} for {format_options(entry.target)}"
            yield Observation(_OVERRIDES, field, value, remedy, command)


@SECTION.check("breaker-open-long", "no breaker is open for an hour", "status", severity=Severity.WARNING)
def breaker_open_long(facts: ClusterFacts) -> Iterator[Observation]:
    for owner, breaker in _list_breakers(facts.status["services"]):
        is_open = breaker["state"] in {"OPEN", "HALF_OPEN"}
        if is_open and facts.at_us - parse_microseconds(breaker["trippedAt"] or breaker["since"]) > _OPEN_US:
            value = f"{breaker['state']} since {breaker['trippedAt'] or breaker['since']}: {breaker['reason']}"
            remedy, command = "remove the cause, then reset it", _build_reset_command(owner)
            yield Observation(str(owner), "breaker.state", value, remedy, command)


@SECTION.check("breaker-forced", "no breaker is forced for days", "status", severity=Severity.WARNING)
def breaker_forced(facts: ClusterFacts) -> Iterator[Observation]:
    for entry in facts.status["overrides"]["entries"]:
        if entry.get("breaker", "").startswith("Forced") and entry["remainingSeconds"] > _FORCED_SECONDS:
            value = f"{entry['breaker']} until {entry['until']}: {entry['reason']}"
            owner = BreakerOwner(entry["service"], entry.get("variant", ""))
            command = _build_reset_command(owner)
            yield Observation(str(owner), "override.breaker", value, "end it", command)


def _list_breakers(services: list[dict[str, Any]]) -> Iterator[tuple[BreakerOwner, dict[str, Any]]]:
    """Yield the known breakers of services and variants; an older server has no variants."""
    for service in services:
        variants = (service.get("shares") or {}).get("variants", ())
        found = (("", service["breaker"]), *((variant["name"], variant["breaker"]) for variant in variants))
        yield from ((BreakerOwner(service["name"], name), breaker) for name, breaker in found if breaker)


def _read_entry(entry: dict[str, Any]) -> Override:
    """Return an entry of a status document, as far as a command that ends it needs."""
    return msgspec.convert({key: entry[key] for key in _NAMING if key in entry} | {"until": "", "reason": ""}, Override)


def _is_cleared_with(entry: Override, other: Override) -> bool:
    """Whether the command that clears an entry ends another one, too: without a target it ends all of the service."""
    return other.service == entry.service and entry.target_key in {"", other.target_key}


def _list_others(entry: Override, entries: Iterable[Override], at_us: int) -> list[Override]:
    """Return the other entries in force that the command that clears an entry would end."""
    return [
        other for other in entries if other is not entry and other.is_live(at_us) and _is_cleared_with(entry, other)
    ]


def _build_clear_command(entry: Override) -> str:
    options = "" if entry.target is None else f" {format_options(entry.target)}"
    options = options if entry.variant is None else f" --variant {quote(entry.variant)}"
    return f"podgate override {quote(entry.service)}{options} --clear"


def _build_reset_command(owner: BreakerOwner) -> str:
    variant = f" --variant {quote(owner.variant)}" if owner.variant else ""
    return f"podgate breaker reset {quote(owner.service)}{variant} --reason check"


def _load_overrides(facts: ClusterFacts) -> OverridesDocument:
    """Return the live document; DocumentError if it is invalid."""
    data = facts.overrides_map.data if facts.overrides_map is not None else None
    return load(((data or {}).get(configmap.OVERRIDES_KEY) or "").encode())


def _load_valid_overrides(facts: ClusterFacts) -> OverridesDocument:
    try:
        return _load_overrides(facts)
    except DocumentError:
        return OverridesDocument()
