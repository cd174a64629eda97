"""Checks of the leader and of the rights of Podgate's service accounts."""

from collections.abc import Iterator

from webhook.core.checks.check import Observation, Section
from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.repair_command import build_restore_command, describe_restore
from webhook.core.document.configmap import NAMESPACE
from webhook.core.kubernetes.timestamps import parse_microseconds

SECTION = Section("leader and rights")
_LEASE = "podgate-leader"
_SECOND_US = 1_000_000
_RIGHTS_SHOWN = 5


@SECTION.check("leader-missing", "a leader renews its Lease", "leases")
def leader_missing(facts: ClusterFacts) -> Iterator[Observation]:
    remedy = f"start the leader: podgate controller with Redis, else the server; see its log in {NAMESPACE}"
    absent, stale = "nothing is refunded or repaired", "not renewed for long"
    yield from check_lease(facts, _LEASE, absent=absent, stale=stale, remedy=remedy)


@SECTION.check("right-missing", "service accounts have the rights of the manifests", "rights")
def right_missing(facts: ClusterFacts) -> Iterator[Observation]:
    missing: dict[str, list[str]] = {}
    for fact in facts.rights:
        if not fact.is_granted:
            missing.setdefault(fact.account, []).append(fact.right)
    for account, rights in missing.items():
        more = f", and {len(rights) - _RIGHTS_SHOWN} more" if len(rights) > _RIGHTS_SHOWN else ""
        value = f"may not {'; '.join(rights[:_RIGHTS_SHOWN])}{more}"
        lacking = (fact for fact in facts.rights if fact.account == account and not fact.is_granted)
        command = build_restore_command(facts, sorted({file for fact in lacking for file in fact.manifests}))
        yield Observation(
            f"ServiceAccount {NAMESPACE}/{account}", "rights", value, f"grant them: {describe_restore(facts)}", command
        )


def check_lease(facts: ClusterFacts, name: str, *, absent: str, stale: str, remedy: str) -> Iterator[Observation]:
    """Yield that a Lease is absent, or was not renewed for twice its duration; the texts are what follows from it."""
    place = f"Lease {NAMESPACE}/{name}"
    found = next((lease for lease in facts.leases if lease.name == name), None)
    if found is None or not found.spec.renew_time:
        yield Observation(place, "metadata.name", f"absent: {absent}", remedy)
        return
    renewed_us, seconds = parse_microseconds(found.spec.renew_time), found.spec.lease_duration_seconds or 15
    if facts.at_us - renewed_us > 2 * seconds * _SECOND_US:
        value = f"{found.spec.renew_time} by {found.spec.holder_identity or 'nobody'}: {stale}"
        yield Observation(place, "spec.renewTime", value, remedy)
