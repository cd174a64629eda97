"""Checks of the store: whether it answers, and the settings that its Redis servers report."""

import re
from collections.abc import Iterator

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.kubernetes.quantity import Duration
from webhook.core.quota import STANDING


def _explain_no_redis(facts: ClusterFacts) -> str:
    kind = facts.status["store"]["kind"]
    return "" if kind == _REDIS else f"counters are in {kind}"


_REDIS = "redis"
SECTION = Section("store", absence=_explain_no_redis)
_VERSION_MIN = (6, 2)
_SUBMITTED_AGAIN_SECONDS = 60
"""After Redis has lost data, each Podgate server submits its charges of this time again."""
_SLOW_SECONDS = 0.025
"""Half of the time that an admission waits."""


@SECTION.check("store-away", "it answers", "status")
def store_away(facts: ClusterFacts) -> Iterator[Observation]:
    store = facts.status["store"]
    if store["error"]:
        remedy = "restore Redis; until then whenStoreUnavailable of each service applies (docs/redis.md)"
        yield Observation(facts.server, f"status.store.error ({store['kind']})", store["error"], remedy)


@SECTION.check("redis-evicts", "Redis evicts no keys", "status")
def redis_evicts(facts: ClusterFacts) -> Iterator[Observation]:
    for place, server in _list_servers(facts):
        policy = server["evictionPolicy"]
        if policy and policy != "noeviction":
            value = f"{policy}: a full Redis loses counters, and Pods pass beyond the limits"
            remedy = "CONFIG SET maxmemory-policy noeviction on this server, and in its configuration (docs/redis.md)"
            yield Observation(place, "maxmemory-policy", value, remedy)


@SECTION.check("redis-version", "Redis is 6.2 or newer", "status")
def redis_version(facts: ClusterFacts) -> Iterator[Observation]:
    for place, server in _list_servers(facts):
        found = re.match(r"(\d+)\.(\d+)", server["version"] or "")
        if found is not None and (int(found[1]), int(found[2])) < _VERSION_MIN:
            yield Observation(place, "redis_version", server["version"], "upgrade it: the script needs 6.2")


@SECTION.check("redis-slow", "Redis answers in time", "status", severity=Severity.WARNING)
def redis_slow(facts: ClusterFacts) -> Iterator[Observation]:
    for place, server in _list_servers(facts):
        if server["latencySeconds"] > _SLOW_SECONDS:
            value = f"{server['latencySeconds'] * 1000:.0f} ms: an admission waits at most 50 ms"
            remedy = "redis-cli --latency from the server's Node; SLOWLOG GET; see podgate_charge_duration_seconds"
            yield Observation(place, "latency", value, remedy)


@SECTION.check("redis-forgets", "a restart of Redis loses no charges", "status", severity=Severity.WARNING)
def redis_forgets(facts: ClusterFacts) -> Iterator[Observation]:
    windows = {name: _find_longest_window(row) for name, row in _list_counters(facts)}
    longest = max(windows, key=lambda name: windows[name][0], default="")
    if not longest or windows[longest][0] <= _SUBMITTED_AGAIN_SECONDS:
        return
    for place, server in _list_servers(facts):
        if server.get("appendOnly") is not False:  # older Podgate servers do not report it
            continue
        lost = _describe_lost_charges(server["save"])
        if lost is not None:
            value = f"no: {lost}; {longest} counts for {windows[longest][1]}"
            remedy = "CONFIG SET appendonly yes on this server, and in its configuration (docs/redis.md)"
            yield Observation(place, "appendonly", value, remedy)


def _list_counters(facts: ClusterFacts) -> Iterator[tuple[str, Json]]:
    """Yield services and pools by name."""
    for service in facts.status["services"]:
        yield service["name"], service
    for pool in facts.status["pools"]:
        yield f"pool {pool['name']}", pool


def _find_longest_window(row: Json) -> tuple[float, str]:
    windows = [window["window"] for window in row["windows"] if window["window"] != STANDING]
    lengths = [(Duration.parse(window).us / 1_000_000, window) for window in windows]
    return max(lengths, default=(0.0, ""))


def _describe_lost_charges(save: str | None) -> str | None:
    """Describe the charges that a restart loses under `save`; None if servers submit them again."""
    if save is None:
        return "its snapshots are not known (CONFIG GET save is not permitted)"
    seconds = [int(number) for number in save.split()[::2]]
    if not seconds:
        return "and it saves no snapshots, so that a restart loses all charges"
    if max(seconds) <= _SUBMITTED_AGAIN_SECONDS:
        return None
    return f"a restart loses the charges since its last snapshot, up to {max(seconds)} s (save {save})"


@SECTION.check("decisions-not-shared", "decision records are written", "status", severity=Severity.WARNING)
def decisions_not_shared(facts: ClusterFacts) -> Iterator[Observation]:
    error = facts.status.get("decisions", {}).get("error")  # older Podgate servers do not have it
    if error and not facts.status["store"]["error"]:
        is_right = error.startswith("authentication:")
        remedy = "ACL SETUSER for its user: +xadd +xrevrange, and its keys" if is_right else "restore Redis"
        yield Observation(facts.server, "status.decisions.error", error, f"{remedy} (docs/redis.md)")


def _list_servers(facts: ClusterFacts) -> Iterator[tuple[str, Json]]:
    """Yield the Redis servers by name; older Podgate servers do not list them."""
    for server in facts.status["store"].get("servers", ()):
        yield f"Redis {server['name'] or ''}".rstrip(), server
