"""Checks as pure functions: each finding by the facts that show it, and their codes, needs and runbook entries."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.core.checks.checks import CHECKS, FACTS, decode_object, document
from tests.core.reporting.status import NOW_US, OPEN, snapshot
from webhook.core.breaker import State
from webhook.core.checks import SECTIONS, ClusterCheck, ClusterFacts, judge_facts
from webhook.core.checks.calls import probes_of
from webhook.core.checks.check import run_check
from webhook.core.checks.facts import CertificateFact, ProbeFact, RightFact
from webhook.core.checks.objects import (
    BudgetObject,
    ClusterMetadata,
    ClusterObject,
    LeaseHolderObject,
    LeaseHolding,
    PodObject,
    ReplicasObject,
)
from webhook.core.checks.rights import Right, list_expected_rights
from webhook.core.document.configmap import KEY, OVERRIDES_KEY, ConfigMap
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.reporting.node_document import ShownNode
from webhook.core.reporting.status import WatchStatus, render_server_status
from webhook.core.reporting.status_parts import DecisionsStatus, StorePlace, StoreServer, StoreServers, StoreStatus
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.operations.shipped_manifests import read_manifest_files

RUNBOOK = Path(__file__).parents[3] / "docs" / "runbook.md"
HOUR_US = 3_600_000_000
POLICY = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"


def policy_map(services: str) -> ConfigMap:
    return ConfigMap(data={KEY: POLICY + services})


WEB = "- {name: web, match: {namespaces: [web], podSelector: {matchLabels: {app: web}}}}\n"
NAMESPACE = ClusterObject(ClusterMetadata(name="web"))


def list_found_codes(facts: ClusterFacts) -> set[str]:
    return {result.check.code for _, results in judge_facts(facts) for result in results if result.findings}


def list_found_values(code: str, facts: ClusterFacts) -> list[str]:
    return [seen.value for seen in run_check(CHECKS[code], facts).findings]


LATER, LONG_AGO = (format_rfc3339(NOW_US + hours * HOUR_US) for hours in (5, -25))


@pytest.mark.parametrize(
    ("about", "other", "is_alone"),
    [
        ("", "service: web, breaker: ForcedOpen", False),
        ("", "service: web, variant: spot, breaker: ForcedOpen", False),
        ("variant: spot, ", "service: web, variant: spot, breaker: ForcedOpen", False),
        ("variant: spot, ", "service: web, quotaFactor: 3", True),
        ("", "service: other, quotaFactor: 3", True),
    ],
)
def test_ended_override_is_cleared_by_a_command_only_if_none_in_force_ends_with_it(
    about: str, other: str, *, is_alone: bool
) -> None:
    thing = "breaker: ForcedOpen" if about else "quotaFactor: 2"
    ended = f"- {{service: web, {about}{thing}, until: {LONG_AGO}, reason: x}}\n"
    text = f"{ended}- {{{other}, until: {LATER}, reason: x}}\n"
    facts = replace(FACTS, overrides_map=ConfigMap(data={OVERRIDES_KEY: text}))
    [finding] = run_check(CHECKS["overrides-ended"], facts).findings
    assert bool(finding.command) is is_alone
    assert finding.remedy == ("remove it" if is_alone else "the next override that is written removes it")


def test_override_without_effect_is_cleared_by_a_command_only_if_it_is_alone() -> None:
    idle = {"service": "web", "withoutEffect": ["the mode is Disabled"]}
    others = [{"service": "web", "withoutEffect": []}, {"service": "other", "withoutEffect": []}]
    commands = []
    for other in others:
        status = {**FACTS.status, "overrides": {"entries": [idle, other]}}
        [finding] = run_check(CHECKS["override-idle"], replace(FACTS, status=status)).findings
        commands.append(finding.command)
    assert commands == ["", "podgate override web --clear"]


# --- the list of checks ---


def test_each_code_is_used_once() -> None:
    assert len(CHECKS) == sum(len(section.checks) for section in SECTIONS) >= 30


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.code)
def test_check_needs_facts_that_exist_and_has_an_entry_in_the_runbook(check: ClusterCheck) -> None:
    assert {*check.needs} <= {field.name for field in fields(ClusterFacts)} | {"policy", "webhooks"}
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", check.code)
    assert f"\n### {check.code}\n" in RUNBOOK.read_text()


def test_runbook_has_no_entry_of_a_former_check() -> None:
    section = RUNBOOK.read_text().partition("\n## Findings of podgate check\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### (.+)$", section, re.MULTILINE)) == CHECKS.keys()


def test_fact_that_could_not_be_read_is_no_tick() -> None:
    facts = replace(FACTS, unread={"pods": "you may not list pods"})
    outcome = run_check(CHECKS["pods-crash"], facts)
    assert (outcome.findings, outcome.not_checked) == ((), "you may not list pods")
    assert run_check(CHECKS["images-differ"], facts).not_checked
    assert not run_check(CHECKS["deployment-unavailable"], facts).not_checked


def test_without_any_fact_every_check_has_an_outcome() -> None:
    unread = {field.name: "x" for field in fields(ClusterFacts) if field.name not in {"at_us", "version"}}
    outcomes = [result for _, results in judge_facts(ClusterFacts(NOW_US, "0.1.0", unread)) for result in results]
    assert {outcome.check.code for outcome in outcomes if not outcome.not_checked} == {
        "server-unreachable",
        "clock-skew",
    }


# --- the server's status ---


def test_status_of_a_healthy_server_has_no_finding() -> None:
    assert {code for code in list_found_codes(FACTS) if "status" in CHECKS[code].needs} == set()


NOT_PERMITTED = "authentication: NOPERM this user has no permissions to run the 'xadd' command"


def redis(version: str, eviction_policy: str, latency_us: int) -> StoreStatus:
    return StoreStatus("redis", servers=StoreServers([StoreServer("", version, eviction_policy, latency_us)]))


def test_redis_as_recommended_has_no_finding() -> None:
    status = document(store=redis("6.2.14", "noeviction", 25_000))
    assert list_found_codes(replace(FACTS, status=status)) == list_found_codes(FACTS)


@pytest.mark.parametrize(
    ("code", "status", "value"),
    [
        ("server-not-ready", {"not_ready": ["no good policy"]}, "no good policy"),
        ("watch-fails", {"watches": {"overrides": WatchStatus(error="HTTP 403")}}, "HTTP 403"),
        ("file-rejected", {"files": {"jwks": "no key"}}, "no key"),
        ("store-away", {"store": StoreStatus("redis", "timeout")}, "timeout"),
        ("redis-evicts", {"store": redis("7.2.4", "allkeys-lru", 1000)}, "allkeys-lru"),
        ("redis-version", {"store": redis("6.0.16", "noeviction", 1000)}, "6.0.16"),
        ("redis-slow", {"store": redis("7.2.4", "noeviction", 26_000)}, "26 ms"),
        (
            "decisions-not-shared",
            {"decisions": DecisionsStatus(9, 0, 9, NOT_PERMITTED), "store": redis("7.2.4", "noeviction", 1000)},
            NOT_PERMITTED,
        ),
        ("serving-certificate-expired", {"certificates": {"serving": NOW_US - HOUR_US}}, "EXPIRED"),
    ],
)
def test_fault_in_the_status_is_found(code: str, status: dict[str, Any], value: str) -> None:
    facts = replace(FACTS, status=document(**status))
    assert value in list_found_values(code, facts)[0]
    assert code not in list_found_codes(FACTS)


def test_decisions_of_a_store_that_is_away_are_no_finding_of_their_own() -> None:
    status = document(store=StoreStatus("redis", "timeout"), decisions=DecisionsStatus(9, 0, 9, "timeout"))
    assert list_found_values("decisions-not-shared", replace(FACTS, status=status)) == []


def test_other_version_of_the_server_is_found() -> None:
    assert list_found_values("server-version", replace(FACTS, version="0.2.0")) == ["0.1.0, this command is 0.2.0"]


def test_policy_that_the_server_does_not_apply_is_found() -> None:
    facts = replace(FACTS, policy_map=policy_map(WEB))
    assert facts.policy is not None
    assert list_found_values("policy-not-in-force", facts) == [f"none, the live policy is {facts.policy.hash}"]
    applied = {**FACTS.status, "policy": {**FACTS.status["policy"], "hash": facts.policy.hash}}
    assert list_found_values("policy-not-in-force", replace(facts, status=applied)) == []


def test_a_rollout_explains_why_the_live_policy_is_not_in_force() -> None:
    facts = replace(FACTS, policy_map=policy_map(WEB))
    waiting = replace(facts, status={**FACTS.status, "rollout": {"candidate": "b" * 16, "waitsFor": None}})
    assert list_found_values("policy-not-in-force", waiting) == []
    held = replace(facts, status={**FACTS.status, "rollout": {"candidate": None, "waitsFor": "pinned: ..."}})
    [found] = run_check(CHECKS["policy-not-in-force"], held).findings
    assert found.remedy == "its rollout is held: pinned: ..."


def test_webhooks_of_a_rollout_are_those_of_both_policies() -> None:
    live = {"webhooks": [], "metadata": {"name": "podgate"}}
    facts = replace(FACTS, policy_map=policy_map(WEB), mutating=[live], validating=[live])
    assert list_found_values("webhooks-stale", facts)
    waiting = replace(facts, status={**FACTS.status, "rollout": {"candidate": "b" * 16}})
    assert list_found_values("webhooks-stale", waiting) == []


def test_comparison_of_webhooks_that_fails_is_found() -> None:
    status = {**FACTS.status, "webhooks": {"comparedAt": None, "outdated": [], "error": "HTTP 403"}}
    assert list_found_values("webhooks-not-compared", replace(FACTS, status=status)) == ["HTTP 403"]


def breaker_status() -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(render_server_status(snapshot())))
    return plain


def test_breaker_is_found_after_an_hour_open() -> None:
    status = breaker_status()
    assert [service["breaker"]["state"] for service in status["services"] if service["breaker"]] == [State.OPEN]
    assert list_found_values("breaker-open-long", replace(FACTS, status=status)) == []
    later = replace(FACTS, status=status, at_us=OPEN.tripped_at_us + HOUR_US + 1)
    assert "OPEN since" in list_found_values("breaker-open-long", later)[0]


def test_breaker_of_a_variant_is_found_with_the_commands_that_name_it() -> None:
    status = breaker_status()
    [service] = [service for service in status["services"] if service["breaker"]]
    variants = [{"name": "spot", "breaker": service["breaker"]}, {"name": "on-demand", "breaker": None}]
    service |= {"shares": {"variants": variants}, "breaker": None}
    later = replace(FACTS, status=status, at_us=OPEN.tripped_at_us + HOUR_US + 1)
    [finding] = run_check(CHECKS["breaker-open-long"], later).findings
    assert finding.object == "service payment-api, variant spot"
    assert finding.command == "podgate breaker reset payment-api --variant spot --reason check"
    entry = {"service": "web", "variant": "spot", "breaker": "ForcedOpen", "remainingSeconds": 86_401, "until": "x"}
    entries = [{**entry, "reason": "y", "withoutEffect": ["variant: spot: no such variant"]}]
    forced = replace(FACTS, status={**FACTS.status, "overrides": {"entries": entries}})
    commands = [run_check(CHECKS[name], forced).findings[0].command for name in ("breaker-forced", "override-idle")]
    assert commands == [
        "podgate breaker reset web --variant spot --reason check",
        "podgate override web --variant spot --clear",
    ]


@pytest.mark.parametrize(("seconds", "count"), [(86_400, 0), (86_401, 1)])
def test_breaker_that_is_forced_for_more_than_a_day_is_found(seconds: int, count: int) -> None:
    entry = {"service": "web", "breaker": "ForcedOpen", "remainingSeconds": seconds, "until": "x", "reason": "y"}
    status = {**FACTS.status, "overrides": {"entries": [{**entry, "withoutEffect": ["the mode is Disabled"]}]}}
    facts = replace(FACTS, status=status)
    assert len(list_found_values("breaker-forced", facts)) == count
    assert list_found_values("override-idle", facts) == ["the mode is Disabled"]


def test_exception_that_lasts_for_more_than_another_week_is_found() -> None:
    week_us = 7 * 86_400_000_000
    text = """\
- service: web
  workload: {namespace: shop, kind: StatefulSet, name: db}
  quotaFactor: 2
  until: UNTIL
  reason: INC-1
- {service: web, quotaFactor: 2, until: UNTIL, reason: INC-1}
"""
    until = format_rfc3339(NOW_US + week_us + 1_000_000)
    overrides = ConfigMap(data={OVERRIDES_KEY: text.replace("UNTIL", until)})
    for at_us, count in ((NOW_US, 1), (NOW_US + 1_000_000, 0)):
        found = run_check(CHECKS["exception-long"], replace(FACTS, overrides_map=overrides, at_us=at_us)).findings
        assert len(found) == count
    [finding] = run_check(CHECKS["exception-long"], replace(FACTS, overrides_map=overrides)).findings
    assert finding.command == "podgate override web --workload statefulset/db -n shop --clear"


def test_long_exception_is_removed_alone_beside_another_of_the_same_pods() -> None:
    entry = "- {service: web, workload: {namespace: shop, kind: StatefulSet, name: db}, until: UNTIL, reason: INC-1"
    long, short = (format_rfc3339(NOW_US + days * 86_400_000_000) for days in (8, 1))
    first = f"{entry}, quotaFactor: 2}}\n".replace("UNTIL", long)
    text = first + f"{entry}, modes: {{breaker: Audit}}}}\n".replace("UNTIL", short)
    facts = replace(FACTS, overrides_map=ConfigMap(data={OVERRIDES_KEY: text}))
    [finding] = run_check(CHECKS["exception-long"], facts).findings
    assert finding.command == ""
    assert "kubectl edit configmap podgate-overrides -n podgate-system" in finding.remedy
    alone = ConfigMap(data={OVERRIDES_KEY: first})
    [finding] = run_check(CHECKS["exception-long"], replace(facts, overrides_map=alone)).findings
    assert finding.command == "podgate override web --workload statefulset/db -n shop --clear"


def test_command_that_ends_an_exception_without_effect_names_its_pods() -> None:
    pods = {"namespace": "shop", "selector": {"matchLabels": {"app": "a"}, "matchExpressions": []}}
    entry = {"service": "web", "pods": pods, "withoutEffect": ["the service has no Pods in namespace shop"]}
    status = {**FACTS.status, "overrides": {"entries": [entry]}}
    [finding] = run_check(CHECKS["override-idle"], replace(FACTS, status=status)).findings
    assert finding.command == "podgate override web --pods app=a -n shop --clear"


# --- clocks ---


@pytest.mark.parametrize(("skew_us", "count"), [(30_000_000, 0), (31_000_000, 1), (-31_000_000, 1)])
def test_clock_of_the_api_server_is_compared(skew_us: int, count: int) -> None:
    assert len(list_found_values("clock-skew", replace(FACTS, api_clock_us=NOW_US + skew_us))) == count
    assert len(list_found_values("clock-skew", replace(FACTS, at_us=NOW_US + skew_us))) == count


def test_certificate_with_less_than_a_sixth_left_is_found() -> None:
    def facts(left_us: int) -> ClusterFacts:
        fact = CertificateFact("Secret x", (), NOW_US + left_us - 6 * HOUR_US, NOW_US + left_us)
        return replace(FACTS, secrets={"podgate-tls": [fact]})

    assert list_found_values("certificate-expiring", facts(HOUR_US)) == []
    assert len(list_found_values("certificate-expiring", facts(HOUR_US - 1))) == 1
    assert list_found_values("certificate-expiring", facts(0)) == []
    assert len(list_found_values("certificate-expired", facts(0))) == 1


@pytest.mark.parametrize(("age_seconds", "count"), [(30, 0), (31, 1)])
def test_lease_that_is_not_renewed_is_found(age_seconds: int, count: int) -> None:
    holding = LeaseHolding("a", 15, format_rfc3339(NOW_US - age_seconds * 1_000_000))
    lease = LeaseHolderObject(ClusterMetadata(name="podgate-leader"), spec=holding)
    assert len(list_found_values("leader-missing", replace(FACTS, leases=[lease]))) == count
    assert len(list_found_values("leader-missing", FACTS)) == 1


# --- calls ---


def test_pod_that_another_plugin_refuses_proves_nothing() -> None:
    denied = ProbeFact("web", "web", 403, 'admission webhook "validate-open.podgate.io" denied the request: x', False)  # noqa: FBT003
    assert list_found_codes(replace(FACTS, probes=[denied])) & {"webhooks-not-called", "calls-fail"} == set()


@pytest.mark.parametrize(
    ("client", "remedy"),
    [
        ({"service": {"name": "podgate"}}, "podgate apiserver-files --once"),
        ({"url": "https://127.0.0.1:8443/mutate"}, "podgate install again"),
    ],
)
def test_expired_token_is_the_only_remedy_of_calls_that_are_refused(client: dict[str, Any], remedy: str) -> None:
    unjudged = ProbeFact("web", "web", 201, "", is_rewritten=False)
    said = 'failed calling webhook "v.podgate.io": the server has asked for the client to provide credentials'
    failed = ProbeFact("pay", "pay", 500, said, is_rewritten=False)
    configuration = {"metadata": {"name": "podgate"}, "webhooks": [{"name": "w", "clientConfig": client}]}
    refused = {"refused": {"authentication_expired": 2}, "fail_open": {"mutate.podgate.io": 1}}
    facts = replace(FACTS, probes=[unjudged, failed], mutating=[configuration], **refused)
    [renewal] = run_check(CHECKS["calls-refused"], facts).findings
    assert remedy in renewal.remedy
    for code in ("webhooks-not-called", "calls-fail", "calls-fail-open"):
        assert "calls-refused" in run_check(CHECKS[code], facts).findings[0].remedy
        calls_alone = run_check(CHECKS[code], replace(facts, refused={})).findings[0].remedy
        assert "calls-refused" not in calls_alone


def pod(age_us: int, **fields: Any) -> PodObject:
    created = format_rfc3339(NOW_US - age_us)
    metadata = {"name": "web-1", "namespace": "web", "creationTimestamp": created, "labels": {"app": "web"}}
    found: PodObject = decode_object(PodObject, {"metadata": metadata | fields.pop("metadata", {}), **fields})
    return found


@pytest.mark.parametrize(
    ("last", "loaded_us", "age_us", "count"),
    [
        (format_rfc3339(NOW_US - HOUR_US), NOW_US - 2 * HOUR_US, HOUR_US // 2, 1),
        (format_rfc3339(NOW_US - HOUR_US // 2), NOW_US - 2 * HOUR_US, HOUR_US // 2, 0),
        (None, NOW_US - HOUR_US, HOUR_US // 2, 1),
        (None, NOW_US - HOUR_US // 2, HOUR_US, 0),
    ],
)
def test_pod_after_the_last_review_is_found(last: str | None, loaded_us: int, age_us: int, count: int) -> None:
    status = {**FACTS.status, "lastReviewAt": last}
    status["policy"] = {**status["policy"], "loadedAt": format_rfc3339(loaded_us)}
    facts = replace(
        FACTS, policy_map=policy_map(WEB), namespaces=[NAMESPACE], workload_pods=[pod(age_us)], status=status
    )
    assert len(list_found_values("nobody-asks", facts)) == count
    status["replicas"] = {**status["replicas"], "count": 2}
    assert list_found_values("nobody-asks", facts) == []


def test_pods_of_daemon_sets_are_not_expected_to_be_judged() -> None:
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "x", "uid": "y"}]}
    facts = replace(FACTS, policy_map=policy_map(WEB), namespaces=[NAMESPACE], workload_pods=[pod(1)])
    assert len(list_found_values("pods-unjudged", facts)) == 1
    assert list_found_values("pods-unjudged", replace(facts, workload_pods=[pod(1, metadata=owner)])) == []
    assert list_found_values("pods-unjudged", replace(facts, workload_pods=[pod(HOUR_US + 1_000_000)])) == []


def test_one_pod_of_each_service_is_created_with_dry_run() -> None:
    services = "".join(
        f"- {{name: s{n}, match: {{namespaces: [web], podSelector: {{matchLabels: {{a: x{n}}}}}}}}}\n"
        for n in range(12)
    )
    found = probes_of(replace(FACTS, policy_map=policy_map(services), namespaces=[NAMESPACE]))
    assert [finding.service for finding in found] == [f"s{n}" for n in range(10)]


def test_no_pod_is_created_where_a_call_changes_nothing() -> None:
    disabled = "modes: {placement: Disabled, resources: Disabled, quota: Disabled, breaker: Disabled}"
    services = f"- {{name: web, match: {{namespaces: [web]}}, {disabled}}}\n"
    assert probes_of(replace(FACTS, policy_map=policy_map(services), namespaces=[NAMESPACE])) == ()


# --- objects ---


def test_selector_that_selects_none_of_the_pods_is_found() -> None:
    facts = replace(FACTS, policy_map=policy_map(WEB), namespaces=[NAMESPACE])
    assert list_found_values("service-selects-no-pod", facts) == []
    other = pod(1, metadata={"labels": {"app": "other"}})
    assert list_found_values("service-selects-no-pod", replace(facts, workload_pods=[other])) == [
        "selects none of 1 Pods in web"
    ]
    assert list_found_values("service-selects-no-pod", replace(facts, workload_pods=[other, pod(1)])) == []


@pytest.mark.parametrize(
    ("restarts", "remedy"),
    [
        (0, "kubectl describe pod podgate-a -n podgate-system"),
        (1, "kubectl logs -n podgate-system podgate-a -c server --previous"),
    ],
)
def test_log_of_the_last_run_is_a_remedy_only_after_a_run(restarts: int, remedy: str) -> None:
    waiting = {"name": "server", "restartCount": restarts, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    stuck = pod(1, metadata={"name": "podgate-a"}, status={"phase": "Pending", "containerStatuses": [waiting]})
    [finding] = run_check(CHECKS["pods-crash"], replace(FACTS, pods=[stuck])).findings
    assert finding.remedy == remedy


def test_old_kubernetes_is_found() -> None:
    assert list_found_values("kubernetes-version", replace(FACTS, kubernetes="v1.29.15")) == ["v1.29.15"]
    assert list_found_values("kubernetes-version", replace(FACTS, kubernetes="v1.30.0")) == []
    assert list_found_values("kubernetes-version", replace(FACTS, kubernetes="v1.36.3+k3s1")) == []


@pytest.mark.parametrize(
    ("fields", "age_us", "count"),
    [
        ({"status": {"phase": "Pending"}}, 61_000_000, 1),
        ({"status": {"phase": "Pending"}}, 59_000_000, 0),
        ({"status": {"phase": "Pending"}, "spec": {"schedulingGates": [{"name": "x"}]}}, 61_000_000, 0),
        ({"status": {"phase": "Running"}}, 61_000_000, 0),
        (
            {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}},
            61_000_000,
            0,
        ),
    ],
)
def test_pod_that_no_scheduler_has_seen_is_found(fields: dict[str, Any], age_us: int, count: int) -> None:
    owned = {"metadata": {"labels": {"podgate.io/service": "web"}}}
    assert (
        len(list_found_values("scheduler-missing", replace(FACTS, workload_pods=[pod(age_us, **fields, **owned)])))
        == count
    )


@pytest.mark.parametrize("mode", ["Enforce", "Audit", "Warn", "Disabled"])
def test_placement_that_is_not_enforced_gives_warnings_of_what_would_be(mode: str) -> None:
    placement = "{priorityClassName: p, runtimeClassName: r, nodeSelector: {disk: ssd}, schedulerName: mine}"
    service = WEB.replace("}}}}", f"}}}}}}, modes: {{placement: {mode}}}, placement: {placement}}}")
    waiting = pod(61_000_000, status={"phase": "Pending"}, spec={"schedulerName": "mine"})
    facts = replace(FACTS, policy_map=policy_map(service), workload_pods=[waiting])
    is_placed = mode == "Enforce"
    left = "" if is_placed else f" with modes.placement Enforce, now {mode}"
    rejected, waits = ("are rejected", "stay Pending") if is_placed else ("would be rejected", "would stay Pending")
    for code, value in (
        ("priority-class-missing", f"p: no such PriorityClass, so all its Pods {rejected}{left}"),
        ("runtime-class-missing", f"r: no such RuntimeClass, so all its Pods {rejected}{left}"),
        ("no-node-fits", f"ssd: no Node has it, so its Pods {waits}{left}"),
    ):
        outcome = run_check(CHECKS[code], facts)
        [finding] = outcome.findings
        assert finding.value == value
        assert outcome.severity == ("error" if is_placed and code != "no-node-fits" else "warning")
    assert len(list_found_values("scheduler-missing", facts)) == is_placed


def test_pod_of_no_service_waits_for_a_scheduler_unless_the_policy_names_it() -> None:
    def list_missing(scheduler: str) -> list[str]:
        waiting = pod(61_000_000, status={"phase": "Pending"}, spec={"schedulerName": scheduler})
        policy = policy_map(WEB.replace("}}}}", "}}}, placement: {schedulerName: mine}}"))
        return list_found_values("scheduler-missing", replace(FACTS, policy_map=policy, workload_pods=[waiting]))

    assert list_missing("theirs") == []
    [value] = list_missing("mine")
    assert value.startswith("mine, set by the policy for web: 1 Pods were never seen by it")


def test_budget_blocks_only_while_all_pods_are_healthy() -> None:
    def list_blocking(healthy: int) -> list[str]:
        status = {"disruptionsAllowed": 0, "currentHealthy": healthy, "expectedPods": 2}
        budget = decode_object(BudgetObject, {"metadata": {"name": "podgate"}, "status": status})
        return list_found_values("budget-blocks", replace(FACTS, budgets=[budget]))

    assert len(list_blocking(2)) == 1
    assert list_blocking(1) == []


@pytest.mark.parametrize(
    ("ended_us", "count"), [(NOW_US - 25 * HOUR_US, 1), (NOW_US - 23 * HOUR_US, 0), (NOW_US + HOUR_US, 0)]
)
def test_override_is_found_a_day_after_its_end(ended_us: int, count: int) -> None:
    text = f"- {{service: web, quotaFactor: 2, until: {format_rfc3339(ended_us)}, reason: x}}\n"
    facts = replace(FACTS, overrides_map=ConfigMap(data={OVERRIDES_KEY: text}))
    assert len(list_found_values("overrides-ended", facts)) == count
    assert list_found_values("overrides-invalid", facts) == []


SERVER_LABELS = {"app.kubernetes.io/name": "podgate"}


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (["kube-apiserver", "--admission-control-config-file=/etc/x.yaml"], 0),
        (["kube-apiserver", "--admission-control-config-file", "/etc/x.yaml"], 0),
        (["kube-apiserver", "--etcd-servers=x"], 1),
    ],
)
def test_kube_apiserver_without_credentials_is_found(command: list[str], count: int) -> None:
    metadata = {"name": "kube-apiserver-a", "namespace": "kube-system", "labels": {"component": "kube-apiserver"}}
    static = decode_object(PodObject, {"metadata": metadata, "spec": {"containers": [{"command": command}]}})
    assert len(list_found_values("apiserver-flag-missing", replace(FACTS, workload_pods=[static]))) == count
    reduced = {**FACTS.status, "clientIdentity": "reduced"}
    assert list_found_values("apiserver-flag-missing", replace(FACTS, workload_pods=[static], status=reduced)) == []


def test_what_depends_on_an_absent_policy_or_configuration_is_not_ticked() -> None:
    assert run_check(CHECKS["no-node-fits"], FACTS).not_checked == "there is no valid policy"
    assert (
        run_check(CHECKS["webhooks-stale"], FACTS).not_checked
        == "there are no webhook configurations; there is no valid policy"
    )
    assert not run_check(CHECKS["webhooks-missing"], FACTS).not_checked


def test_missing_rights_are_one_finding_for_each_account() -> None:
    rights = [RightFact("podgate", f"get {number}", is_granted=False) for number in range(7)]
    facts = replace(FACTS, rights=[*rights, RightFact("podgate-controller", "list pods", is_granted=True)])
    assert list_found_values("right-missing", facts) == ["may not get 0; get 1; get 2; get 3; get 4, and 2 more"]


# --- rights ---


RULE = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "list"], "resourceNames": ["a", "b"]}


def test_rights_are_one_for_each_verb_resource_and_name() -> None:
    role = {"kind": "Role", "metadata": {"name": "r"}, "rules": [RULE]}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "podgate"}],
    }
    found = list_expected_rights({"base/rbac.yaml": [role, binding], "redis/rbac.yaml": [binding]}, FACTS)
    assert found == tuple(
        Right("podgate", verb, "", "pods", "status", "podgate-system", name, manifests=("base/rbac.yaml",))
        for verb in ("get", "list")
        for name in ("a", "b")
    )
    assert str(found[0]) == "get pods/status named a in podgate-system"


def test_rights_of_a_controller_outside_the_cluster_are_those_of_its_manifests() -> None:
    role = {"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [{**RULE, "verbs": ["get"]}]}
    binding = {"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": "r"}}
    base = {**binding, "metadata": {"name": "r-in-memory"}, "subjects": [{"name": "podgate"}]}
    redis = {**binding, "metadata": {"name": "r"}, "subjects": [{"name": "podgate-controller"}]}
    manifests = {"base/rbac.yaml": [role, base], "redis/rbac.yaml": [redis]}
    for mode, account in (("memory", "podgate"), ("redis", "podgate-controller")):
        facts = replace(FACTS, record_map=ConfigMap(data={"mode": mode, "serverURL": "https://127.0.0.1:8443"}))
        assert {right.account for right in list_expected_rights(manifests, facts)} == {account}


# --- load-aware scheduling ---

SOURCES = "nodes: {sources: [{prometheus: {url: https://p}}, {requests: {}}]}\n"
USER = "- {name: web, match: {namespaces: [web]}, scheduling: {hot: {cpu: 0.8}}}\n"


def scheduling_policy(nodes: str = SOURCES, user: str = USER) -> ConfigMap:
    return ConfigMap(data={KEY: POLICY.replace("services:", f"{nodes}services:") + user})


SCHEDULING = replace(FACTS, policy_map=scheduling_policy())


def build_deployed_facts(*names: str) -> ClusterFacts:
    return replace(
        SCHEDULING, deployments=[decode_object(ReplicasObject, {"metadata": {"name": name}}) for name in names]
    )


def build_shown_node(name: str, source: str | None) -> ShownNode:
    load = None if source is None else NodeLoad(source, 0.0)
    return ShownNode(name, None, None, 0, 0, load, None)


def scheduler_map(**extender: Any) -> ConfigMap:
    safe = {"nodeCacheCapable": True, "ignorable": True, "enableHTTPS": True, "preemptVerb": "preempt"}
    tls = {"tlsConfig": {"caFile": "/ca.crt"}}
    return ConfigMap(data={"config.yaml": json.dumps({"extenders": [{**safe, **tls, **extender}]})})


def test_policy_without_an_extender_is_found() -> None:
    assert "extender-missing" in list_found_codes(build_deployed_facts())
    assert "extender-missing" not in list_found_codes(build_deployed_facts("podgate-extender"))
    assert "extender-missing" not in list_found_codes(
        replace(build_deployed_facts(), extenders={"e": [build_shown_node("a", "prometheus")]})
    )
    assert "extender-missing" not in list_found_codes(replace(build_deployed_facts(), policy_map=policy_map(WEB)))


def test_nodes_without_a_fresh_load_are_found_if_a_source_measures() -> None:
    measured, unmeasured = (
        build_shown_node("a", "prometheus"),
        [build_shown_node("b", "requests"), build_shown_node("c", None)],
    )
    facts = replace(SCHEDULING, extenders={"e": [measured, *unmeasured]})
    assert list_found_values("loads-unknown", facts) == ["2 of 3 nodes have no fresh load, such as b: none is refused"]
    assert "loads-unknown" not in list_found_codes(
        replace(SCHEDULING, extenders={"e": [measured, measured, *unmeasured]})
    )
    requests = scheduling_policy("nodes: {sources: [{requests: {}}]}\n")
    assert "loads-unknown" not in list_found_codes(replace(facts, policy_map=requests))


def test_pressures_that_a_threshold_names_and_most_nodes_do_not_report_are_found() -> None:
    def build_node(name: str, source: str = "prometheus", **pressures: float) -> ShownNode:
        return ShownNode(name, None, None, 0, 0, NodeLoad(source, 0.0, **pressures), None)

    limited = scheduling_policy(user=USER.replace("hot: {cpu: 0.8}", "pressure: {memory: 0.1, io: 0.1}"))
    nodes = [
        build_node("a", memory_pressure=0.0, io_pressure=0.0),
        build_node("b", memory_pressure=0.0),
        build_node("c"),
    ]
    facts = replace(SCHEDULING, policy_map=limited, extenders={"e": nodes})
    assert list_found_values("pressures-unknown", facts) == [
        "io pressure of 2 of 3 nodes is unknown, such as of b: its threshold refuses none of them"
    ]
    unmeasured = [build_node("d", "requests"), build_shown_node("e", None)]
    for known in (nodes[:1], nodes[:1] + unmeasured, unmeasured):
        assert "pressures-unknown" not in list_found_codes(replace(facts, extenders={"e": known}))
    assert "pressures-unknown" not in list_found_codes(replace(SCHEDULING, extenders={"e": nodes}))


def test_missing_objects_by_which_pods_are_woken_are_found() -> None:
    wake = decode_object(ClusterObject, {"metadata": {"name": "podgate-wake"}})
    whole = replace(SCHEDULING, storage_classes=[wake], wake_map=ConfigMap())
    assert "wake-missing" not in list_found_codes(whole)
    for missing, effect in ({"storage_classes": []}, "five minutes"), ({"wake_map": None}, "all Pods that wait"):
        [found] = list_found_values("wake-missing", replace(whole, **missing))
        assert effect in found
    assert "wake-missing" not in list_found_codes(replace(whole, wake_map=None, policy_map=policy_map(WEB)))


def test_objects_that_an_extender_cannot_read_are_found() -> None:
    facts = replace(SCHEDULING, extender_unread={"e": ["nodes a: status: cpu: 'x'"], "f": []})
    assert list_found_values("report-unread", facts) == ["nodes a: status: cpu: 'x'"]
    assert "report-unread" not in list_found_codes(SCHEDULING)


def test_scheduler_that_does_not_lead_is_found() -> None:
    def lease(age_us: int) -> LeaseHolderObject:
        holding = LeaseHolding("a", 15, format_rfc3339(NOW_US - age_us))
        return LeaseHolderObject(ClusterMetadata(name="podgate-scheduler"), spec=holding)

    facts = build_deployed_facts("podgate-scheduler")
    assert "scheduler-not-leading" in list_found_codes(facts)
    assert "scheduler-not-leading" in list_found_codes(replace(facts, leases=[lease(31_000_000)]))
    assert "scheduler-not-leading" not in list_found_codes(replace(facts, leases=[lease(0)]))
    assert "scheduler-not-leading" not in list_found_codes(build_deployed_facts())


@pytest.mark.parametrize(
    "unsafe",
    [{"nodeCacheCapable": False}, {"ignorable": False}, {"enableHTTPS": None}, {"preemptVerb": ""}, {"tlsConfig": {}}],
)
def test_unsafe_configuration_of_the_scheduler_is_found(unsafe: dict[str, Any]) -> None:
    assert len(list_found_values("scheduler-configuration", replace(FACTS, scheduler_map=scheduler_map(**unsafe)))) == 1
    assert list_found_values("scheduler-configuration", replace(FACTS, scheduler_map=scheduler_map())) == []


def test_pod_of_the_extender_that_is_not_ready_is_found() -> None:
    def pod(status: str) -> PodObject:
        condition = {"type": "Ready", "status": status, "message": "not listed"}
        labels = {"app.kubernetes.io/name": "podgate-extender"}
        pod: PodObject = decode_object(
            PodObject, {"metadata": {"labels": labels}, "status": {"conditions": [condition]}}
        )
        return pod

    assert list_found_values("extender-not-ready", replace(FACTS, pods=[pod("True"), pod("False")])) == ["not listed"]


def test_scheduler_older_than_the_newest_ca_is_found() -> None:
    labels = {"app.kubernetes.io/name": "podgate-scheduler"}
    metadata = {"name": "s", "labels": labels, "creationTimestamp": format_rfc3339(NOW_US - 2 * HOUR_US)}
    pod = decode_object(PodObject, {"metadata": metadata})
    old, new = (CertificateFact("ca", (), NOW_US - hours * HOUR_US, NOW_US + HOUR_US) for hours in (3, 1))
    assert "scheduler-ca-unread" in list_found_codes(replace(FACTS, pods=[pod], scheduler_cas=(old, new)))
    assert "scheduler-ca-unread" not in list_found_codes(replace(FACTS, pods=[pod], scheduler_cas=(new,)))
    assert "scheduler-ca-unread" not in list_found_codes(replace(FACTS, pods=[pod], scheduler_cas=(old, old)))


# --- what an installation does not have, and what cannot be read ---


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("deployment-unavailable", "there is no Deployment in podgate-system"),
        ("budget-missing", "there is no Deployment in podgate-system"),
        ("pods-crash", "there is no Pod in podgate-system"),
        ("redis-evicts", "counters are in memory"),
        ("store-away", "counters are in memory"),
        ("certificate-expired", "there is no Secret with certificates in podgate-system"),
        ("extender-missing", "there is no valid policy"),
        ("scheduler-configuration", "no service has `scheduling`, and neither an extender nor its kube-scheduler runs"),
    ],
)
def test_what_an_installation_does_not_have_is_no_tick(code: str, reason: str) -> None:
    outcome = run_check(CHECKS[code], FACTS)
    assert reason in (outcome.not_applicable, outcome.not_checked)
    assert not outcome.findings


def deployment(name: str, *arguments: str) -> ReplicasObject:
    template = {"metadata": {}, "spec": {"containers": [{"name": "podgate", "args": arguments}]}}
    return decode_object(ReplicasObject, {"metadata": {"name": name}, "spec": {"template": template}})  # type: ignore[no-any-return]  by type


RBAC = {
    path: [document for document in found if document.get("apiVersion") == "rbac.authorization.k8s.io/v1"]
    for path, found in read_manifest_files().items()
}
ROLES = {path: [document for document in found if "rules" in document] for path, found in RBAC.items()}
AGENT = [deployment("podgate-apiserver-files")]
ALL_PARTS = [deployment(name) for name in ("podgate-controller", "podgate-extender", "podgate-scheduler")]


def test_every_binding_of_the_manifests_is_reviewed_where_it_is_meant() -> None:
    """A right that no installation is asked for could be missing in silence."""
    bound = {
        (subject["name"], path)
        for path, found in RBAC.items()
        for document in found
        for subject in list_subjects(document)
    }
    asked = set[tuple[str, str]]()
    for path, found in RBAC.items():
        for deployments in (ALL_PARTS, []):
            record = ConfigMap(data={"certificates": "own"})
            facts = replace(FACTS, record_map=record, daemon_sets=AGENT, deployments=deployments)
            asked |= {(expected.account, path) for expected in list_expected_rights({**ROLES, path: found}, facts)}
    assert asked == bound
    assert len(bound) > 10


def list_subjects(binding: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return list(binding.get("subjects", ()))


def test_rights_to_wake_controllers_are_reviewed_unless_that_is_disabled() -> None:
    right = "patch replicasets/status.apps"
    assert right in map(str, list_expected_rights(RBAC, FACTS))
    without = replace(FACTS, deployments=[deployment("podgate", "--wake-controllers=false")])
    assert right not in map(str, list_expected_rights(RBAC, without))


def test_rights_of_certificates_are_reviewed_where_podgate_manages_them() -> None:
    right = "update secrets named podgate-tls in podgate-system"
    own = [deployment("podgate", "--certificates=own")]
    assert right not in map(str, list_expected_rights(RBAC, FACTS))
    assert [
        expected.account
        for expected in list_expected_rights(RBAC, replace(FACTS, deployments=own))
        if str(expected) == right
    ] == ["podgate"]
    controller = replace(FACTS, deployments=[*own, deployment("podgate-controller")])
    assert [expected.account for expected in list_expected_rights(RBAC, controller) if str(expected) == right] == [
        "podgate-controller"
    ]


# --- servers and controllers together ---


def build_process_status(
    run_id: str = "r1", database: int = 0, cluster: str = "default", policy: str = ""
) -> dict[str, Any]:
    servers = StoreServers([StoreServer("", "7.2.4", "noeviction", 1000, run_id)])
    shown = document(store=StoreStatus("redis", servers=servers, place=StorePlace(cluster, database)))
    return {**shown, "policy": {**shown["policy"], "hash": policy or None}}


@pytest.mark.parametrize(
    ("other", "code", "value"),
    [
        ({}, "", ""),
        ({"run_id": "r2"}, "stores-differ", "redis r1 database 0: a; redis r2 database 0: b"),
        ({"database": 1}, "stores-differ", "redis r1 database 0: a; redis r1 database 1: b"),
        ({"run_id": ""}, "", ""),  # an older one, or without the right to INFO
        ({"cluster": "prod"}, "cluster-names-differ", "default: a; prod: b"),
        ({"policy": "f" * 16}, "policies-differ", f"none: a; {'f' * 16}: b"),
    ],
)
def test_processes_that_do_not_agree_are_found(other: dict[str, Any], code: str, value: str) -> None:
    facts = replace(FACTS, processes={"a": build_process_status(), "b": build_process_status(**other)})
    assert list_found_codes(facts) - list_found_codes(FACTS) == ({code} if code else set())
    if code:
        assert list_found_values(code, facts) == [value]


def test_one_process_alone_is_compared_with_none() -> None:
    facts = replace(FACTS, processes={"a": build_process_status()})
    alone = "no other server or controller was found in the cluster"
    assert run_check(CHECKS["stores-differ"], facts).not_applicable == alone


def test_a_process_that_does_not_answer_is_named() -> None:
    facts = replace(FACTS, processes={"a": build_process_status()}, silent={"b": "HTTP 500"})
    assert list_found_values("process-unreachable", facts) == ["HTTP 500"]


@pytest.mark.parametrize(
    ("ours", "theirs", "value"),
    [
        (("--store=redis://r:6379/0",), ("--store=redis://r:6379/0",), []),
        (
            ("--store=redis://:secret@r:6379/0",),
            ("--store=redis://r:6379/1",),
            ["podgate: redis://r:6379/0, podgate-controller: redis://r:6379/1"],
        ),
        (
            ("--store=redis://r", "--cluster=a"),
            ("--store=redis://r",),
            ["podgate: a, podgate-controller: the default"],
        ),
    ],
)
def test_arguments_of_server_and_controller_that_differ_are_found(
    ours: tuple[str, ...], theirs: tuple[str, ...], value: list[str]
) -> None:
    facts = replace(FACTS, deployments=[deployment("podgate", *ours), deployment("podgate-controller", *theirs)])
    assert list_found_values("arguments-differ", facts) == value
