"""Differences of two policies: fields in words, and Pods that change their service by the order alone."""

import itertools

import pytest

from tests.cli.command_runner import policy_text
from webhook.core.document.loading import load_unproved
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import Match, Policy
from webhook.core.policy_changes.differences import compare
from webhook.core.policy_changes.owners import may_share


def policy(services: str, head: str = "") -> Policy:
    return load_unproved(policy_text(services, head).encode(), None).policy


def list_changes(before: str, after: str) -> list[str]:
    """Return the changes of the fields of one service."""
    services = (policy(f"- name: web\n  match: {{namespaces: [shop]}}\n  {text}\n") for text in (before, after))
    return [str(field) for entry in compare(*services).entries for field in entry.fields]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            "quota: {windows: [{window: 60s, hard: {cpu: 1}}]}",
            "quota: {windows: [{window: 1m, hard: {cpu: 1000m}}]}",
            [],
        ),
        (
            "placement: {shares: {variants: [{name: a, weight: 8}, {name: b, weight: 2, nodeSelector: {c: d}}]}}",
            "placement: {shares: {variants: [{name: a, weight: 7}, {name: b, nodeSelector: {c: e}}]}}",
            [
                "placement.shares.variants[a].weight: 8 -> 7 (lowered)",
                "placement.shares.variants[b].weight: removed: 2",
                "placement.shares.variants[b].nodeSelector.c: d -> e",
            ],
        ),
        (
            "quota: {windows: [{window: 1m, hard: {pods: 5, cpu: 2}}]}",
            "quota: {windows: [{window: 60s, hard: {pods: 9, cpu: 500m}}]}",
            [
                "quota.windows[1m].hard.pods: 5 -> 9 (raised)",
                "quota.windows[1m].hard.cpu: 2 -> 500m (lowered)",
            ],
        ),
        (
            "quota: {windows: [{window: 1m, hard: {pods: 5}}]}",
            "quota: {windows: [{window: 90s, hard: {pods: 5}}]}",
            [
                'quota.windows[1m]: removed: {"window":"1m","hard":{"pods":"5"}}',
                'quota.windows[90s]: added: {"window":"90s","hard":{"pods":"5"}}',
            ],
        ),
        ("modes: {quota: Warn}", "modes: {}", ["modes.quota: Warn -> Enforce"]),
        ("modes: {quota: Enforce}", "modes: {}", []),
        ("slaClass: gold", "slaClass: silver", ["slaClass: gold -> silver"]),
        (
            "placement: {nodeSelector: {a.b/c: x, d: y}}",
            "placement: {nodeSelector: {a.b/c: z}}",
            ["placement.nodeSelector[a.b/c]: x -> z", "placement.nodeSelector.d: removed: y"],
        ),
        (
            "placement: {tolerationsByQosClass: {Burstable: [{key: a, operator: Exists}]}}",
            "placement: {tolerationsByQosClass: {BestEffort: [{key: b, operator: Exists}]}}",
            [
                'placement.tolerationsByQosClass.Burstable: removed: [{"key":"a","operator":"Exists"}]',
                'placement.tolerationsByQosClass.BestEffort: added: [{"key":"b","operator":"Exists"}]',
            ],
        ),
        (
            "placement: {topology: [{level: Zone, in: [a]}]}",
            "placement: {topology: [{level: Zone, in: [a, b]}]}",
            ["placement.topology[topology.kubernetes.io/zone].in[b]: added: b"],
        ),
        (
            "breaker: {quotaExceeded: {count: 5}}",
            "breaker: {quotaExceeded: {count: 6}, openFor: 60s}",
            ["breaker.quotaExceeded.count: 5 -> 6 (raised)", "breaker.openFor: 180s -> 60s (lowered)"],
        ),
    ],
)
def test_fields_are_compared_by_value(before: str, after: str, expected: list[str]) -> None:
    assert list_changes(before, after) == expected


def test_defaults_count_for_the_services_that_have_them() -> None:
    services = "- {name: a, match: {namespaces: [x]}}\n- {name: b, match: {namespaces: [y]}, failureMode: Open}\n"
    found = compare(policy(services), policy(services, "defaults: {failureMode: Closed}"))
    assert list(found.format_lines()) == ["service a", "  failureMode: Open -> Closed"]


def test_own_demand_that_is_switched_off_is_shown_and_written_out_it_changes_nothing() -> None:
    head = "nodes: {sources: [{metricsAPI: {}}]}"
    implied, written, off = (
        policy(f"- {{name: a, match: {{namespaces: [x]}}, scheduling: {{hot: {{cpu: 0.8{more}}}}}}}\n", head)
        for more in ("", ", ownDemand: true", ", ownDemand: false")
    )
    assert not compare(implied, written)
    assert list(compare(implied, off).format_lines()) == ["service a", "  scheduling.hot.ownDemand: true -> false"]


def test_a_policy_is_the_same_as_itself_in_another_notation() -> None:
    plain = "- {name: a, match: {namespaces: [x]}, quota: {windows: [{window: 1h, hard: {cpu: 1}}]}}\n"
    other = plain.replace("1h", "60m").replace("cpu: 1", 'requests.cpu: "1"')
    assert not compare(policy(plain), policy(plain))
    assert not compare(policy(plain), policy(plain.replace("1h", "3600s")))
    assert compare(policy(plain), policy(other)), "an alias is another field"


MATCHES = {
    "all": "{namespaces: [shop]}",
    "web": "{namespaces: [shop], podSelector: {matchLabels: {app: web}}}",
    "api": "{namespaces: [shop], podSelector: {matchLabels: {app: api}}}",
    "tier": "{namespaces: ['shop*'], podSelector: {matchExpressions: [{key: tier, operator: Exists}]}}",
    "else": "{namespaces: [other], podSelector: {matchLabels: {app: web}}}",
}
PODS = [
    (namespace, {key: value for key, value in (("app", app), ("tier", tier)) if value})
    for namespace, app, tier in itertools.product(("shop", "shop-2", "other"), ("web", "api", ""), ("gold", ""))
]


@pytest.mark.parametrize("names", [*itertools.permutations(("web", "api", "tier", "else")), ("web", "api"), ("tier",)])
def test_pods_change_their_service_only_where_the_difference_says_so(names: tuple[str, ...]) -> None:
    """Hold the sentences against the real matcher, for each order of services, and with some left out."""
    first = ("web", "api", "tier", "else")
    old, new = (policy("".join(f"- {{name: {n}, match: {MATCHES[n]}}}\n" for n in each)) for each in (first, names))
    said = " / ".join(compare(old, new).owners)
    for namespace, labels in PODS:
        before, after = (Matcher(each).find_owner(namespace, {}, labels) for each in (old, new))
        if before is not None and after is not None and before.name != after.name:
            assert before.name in said, said
            assert after.name in said, said
    if names == first:
        assert said == ""


def test_only_services_that_may_share_a_pod_are_named() -> None:
    shared = {
        pair
        for pair in itertools.combinations(sorted(MATCHES), 2)
        if may_share(*(policy(f"- {{name: a, match: {MATCHES[name]}}}\n").services[0].match for name in pair))
    }
    assert shared == {("all", "api"), ("all", "tier"), ("all", "web"), ("api", "tier"), ("tier", "web")}


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        *(("a", "a", True), ("a", "b", False), ("a*", "ab", True), ("a*", "b", False)),
        *(("a*", "ab*", True), ("a*", "b*", False), ("*-a", "x-a", True), ("*-a", "x-b", False)),
        *(("*-a", "*b-a", True), ("*-a", "*-b", False), ("a*", "*b", True)),
    ],
)
def test_patterns_of_namespaces_meet(one: str, other: str, *, meet: bool) -> None:
    assert may_share(Match(namespaces=(one,)), Match(namespaces=(other,))) is meet


def test_list_that_forbids_everything_is_shown_in_a_new_service() -> None:
    web = "- name: web\n  match: {namespaces: [shop]}\n"
    tenant = "- name: tenant\n  match: {namespaces: [a]}\n  placement: {allow: {tolerations: []}}\n"
    [entry] = compare(policy(web), policy(tenant + web)).entries
    assert 'placement: added: {"allow":{"tolerations":[]},"onConflict":{"default":"Deny"}}' in map(str, entry.fields)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("unmatched: Deny", "unmatched: Admit -> Deny"),
        ("exemptions: {daemonSets: false}", "exemptions.daemonSets: true -> false"),
        ("breakerGuard: {maxOpenPercent: 40}", 'breakerGuard: added: {"maxOpenPercent":40}'),
        ("slaClasses: [{name: bronze, priority: 5}]", "slaClasses[bronze].priority: 10 -> 5 (lowered)"),
        ("nodes: {sources: [{metricsAPI: {}}]}", 'nodes: added: {"sources":[{"metricsAPI":{}}]'),
    ],
)
def test_fields_of_the_whole_policy_are_compared(head: str, expected: str) -> None:
    services = "- name: web\n  match: {namespaces: [shop]}\n"
    found = compare(policy(services), policy(services, head)).policy
    assert any(str(change).startswith(expected) for change in found), found


def test_kinds_of_workloads_are_compared_by_their_group() -> None:
    services = "- {name: web, match: {namespaces: [shop]}}\n"
    train = "{apiGroup: example.com, kind: Train, templates: [spec.%s]}"
    before = policy(services, f"workloads: [{train % 'a'}, {{apiGroup: ray.io, kind: RayJob, templates: []}}]\n")
    after = policy(services, f"workloads: [{train % 'b'}]\n")
    assert list(map(str, compare(before, after).policy)) == [
        "workloads[Train.example.com].templates[spec.a]: removed: spec.a",
        "workloads[Train.example.com].templates[spec.b]: added: spec.b",
        'workloads[RayJob.ray.io]: removed: {"apiGroup":"ray.io","kind":"RayJob","templates":[]}',
    ]
