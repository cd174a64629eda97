"""Limits of each rule: valid documents next to those in `bad/`."""

import pytest

from tests.core.document.documents import HEAD, build_document, list_problems, list_warnings


def windows(hard: str) -> str:
    return build_document(f"  quota: {{windows: [{{window: 1m, hard: {{{hard}}}}}]}}\n")


@pytest.mark.parametrize(
    "resource",
    [
        *("pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "limits.cpu", "limits.memory"),
        *("hugepages-2Mi", "requests.hugepages-1Gi", "requests.nvidia.com/gpu", "requests.ephemeral-storage"),
    ],
)
def test_resources_of_pods_can_be_limited(resource: str) -> None:
    assert list_problems(windows(f'"{resource}": 1')) == []


@pytest.mark.parametrize(
    "resource",
    [
        "services",
        "requests.storage",
        "count/deployments.apps",
        "limits.nvidia.com/gpu",
        "nvidia.com/gpu",
        "requests.pods",
        "gpu",
    ],
)
def test_other_resources_cannot_be_limited(resource: str) -> None:
    [line] = list_problems(windows(f'"{resource}": 1'))
    assert line.startswith("6:")


def test_two_to_the_53_is_the_largest_limit() -> None:
    assert list_problems(windows(f"pods: {2**53}")) == []
    assert "above 2^53" in list_problems(windows(f"pods: {2**53 + 1}"))[0]
    assert "above 2^53" in list_problems(windows(f"cpu: {2**53 // 1000 + 1}"))[0], "cpu is counted in thousandths"


@pytest.mark.parametrize("window", ["1s", "90s", "1h30m", "720h", "1000ms", "0.5h"])
def test_a_window_is_any_whole_number_of_seconds_up_to_30_days(window: str) -> None:
    assert list_problems(build_document(f"  quota: {{windows: [{{window: {window}, hard: {{pods: 1}}}}]}}\n")) == []


@pytest.mark.parametrize("window", ["999ms", "1500ms", "720h1s", "-1m", "1m ", "60", '""', "1d"])
def test_other_durations_are_no_window(window: str) -> None:
    quoted = window if window.startswith('"') or window == "60" else f'"{window}"'
    assert len(list_problems(build_document(f"  quota: {{windows: [{{window: {quoted}, hard: {{pods: 1}}}}]}}\n"))) == 1


SHADOWED = [
    ("{namespaces: [a]}", "{namespaces: [a]}"),
    ("{namespaces: [a, b]}", "{namespaces: [b]}"),
    ('{namespaces: ["a*"]}', '{namespaces: [a, "ab*"]}'),
    ('{namespaces: ["*-a"]}', '{namespaces: [b-a, "*b-a"]}'),
    ("{anyNamespace: true}", "{namespaceSelector: {matchLabels: {x: y}}}"),
    ("{anyNamespace: true}", "{anyNamespace: true}"),
    ("{namespaces: [a]}", "{namespaces: [a], ownerKinds: [Job]}"),
    ("{namespaces: [a], ownerKinds: [Job, Deployment]}", "{namespaces: [a], ownerKinds: [Job]}"),
    (
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: Exists}]}}",
        "{namespaces: [a], podSelector: {matchLabels: {k: v}}}",
    ),
    (
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: In, values: [v, w]}]}}",
        "{namespaces: [a], podSelector: {matchLabels: {k: v, other: o}}}",
    ),
    (
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: NotIn, values: [v]}]}}",
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: DoesNotExist}]}}",
    ),
    (
        "{namespaceSelector: {matchLabels: {x: y}}}",
        "{namespaces: [a], namespaceSelector: {matchLabels: {x: y}}}",
    ),
]
REACHABLE = [
    ("{namespaces: [a]}", "{namespaces: [a, b]}"),
    ("{namespaces: [a]}", '{namespaces: ["a*"]}'),
    ("{namespaces: [a], ownerKinds: [Job]}", "{namespaces: [a], ownerKinds: [Job, Deployment]}"),
    ("{namespaces: [a], ownerKinds: [Job]}", "{namespaces: [a]}"),
    ("{namespaces: [a]}", "{anyNamespace: true}"),
    ('{namespaces: ["a*"]}', '{namespaces: ["*a"]}'),
    ('{namespaces: ["*b-a"]}', '{namespaces: ["*-a"]}'),
    ("{namespaces: [a]}", "{namespaceSelector: {matchLabels: {x: y}}}"),
    ("{namespaceSelector: {matchLabels: {x: y}}}", "{namespaces: [a]}"),
    ("{namespaces: [a], podSelector: {matchLabels: {k: v}}}", "{namespaces: [a]}"),
    ("{namespaces: [a], podSelector: {matchLabels: {k: v}}}", "{namespaces: [a], podSelector: {matchLabels: {k: w}}}"),
    (
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: In, values: [v]}]}}",
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: NotIn, values: [w]}]}}",
    ),
    (
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: Exists}]}}",
        "{namespaces: [a], podSelector: {matchExpressions: [{key: k, operator: NotIn, values: [v]}]}}",
    ),
]


def two_services(first: str, second: str) -> str:
    return HEAD + f"services:\n- name: first\n  match: {first}\n- name: second\n  match: {second}\n"


@pytest.mark.parametrize(("first", "second"), SHADOWED)
def test_service_shadowed_by_an_earlier_match_is_an_error(first: str, second: str) -> None:
    [line] = list_problems(two_services(first, second))
    assert line.startswith("7:3: services[1].match: ")
    assert "service first above (line 5)" in line


@pytest.mark.parametrize(("first", "second"), REACHABLE)
def test_service_that_can_own_a_pod_is_valid(first: str, second: str) -> None:
    assert list_problems(two_services(first, second)) == []


def test_daemon_sets_are_an_owner_kind_only_if_they_are_not_exempt() -> None:
    services = "services:\n- name: a\n  match: {namespaces: [a], ownerKinds: [DaemonSet]}\n"
    [line] = list_problems(HEAD + services)
    where = "5:41: services[0].match.ownerKinds[0]: DaemonSet: "
    assert line == f"{where}Pods of DaemonSets are exempt: remove it, or write exemptions.daemonSets: false"
    assert list_problems(HEAD + "exemptions: {daemonSets: false}\n" + services) == []


def test_if_absent_needs_its_field_and_no_conflict_rule() -> None:
    spread = "topologySpreadConstraints: [{topologyKey: a, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]"
    absent = "ifAbsent: [topologySpreadConstraints, podAntiAffinity]"
    rule = "onConflict: {topologySpreadConstraints: Keep}"
    found = list_problems(build_document(f"  placement: {{{spread}, {absent}, {rule}}}\n"))
    assert [line.split(": ", 1)[1] for line in found] == [
        (
            "services[0].placement.ifAbsent[1]: podAntiAffinity: placement sets nothing there:"
            " set affinity.podAntiAffinity, or remove it"
        ),
        (
            "services[0].placement.onConflict.topologySpreadConstraints: Keep: has no effect:"
            " ifAbsent leaves a Pod's own topologySpreadConstraints as they are: keep one of the two"
        ),
    ]


def test_rule_is_not_checked_if_one_of_its_own_fields_is_wrong() -> None:
    document = build_document("  breaker:\n    outcomes: {source: Pushd}\n    errorRate: {percent: 500}\n")
    assert [line.split(": ")[1] for line in list_problems(document)] == [
        "services[0].breaker.outcomes.source",
        "services[0].breaker.errorRate.percent",
    ]


def test_rule_is_checked_if_only_other_fields_are_wrong() -> None:
    document = build_document(
        "  slaClass: 7\n  breaker:\n    outcomes: {source: Pushed}\n    errorRate: {percent: 500}\n"
    )
    assert [line.split(": ")[1] for line in list_problems(document)] == [
        "services[0].slaClass",
        "services[0].breaker.outcomes.reporters",
        "services[0].breaker.errorRate.percent",
    ]


def test_misspelled_field_is_not_reported_as_missing_too() -> None:
    assert len(list_problems(build_document("  quota: {windos: [{window: 1m, hard: {pods: 1}}]}\n"))) == 1
    assert len(list_problems(HEAD + "servces:\n- {name: a, match: {namespaces: [a]}}\n")) == 2, "unknown, and required"


def test_member_of_a_pool_needs_no_limits_of_its_own() -> None:
    document = build_document("  pool: prod\n  quota: {per: Namespace}\n")
    assert not any("limits nothing" in line for line in list_problems(document))


def test_breaker_in_audit_has_no_warning_about_namespaces() -> None:
    quota = "  quota: {per: Namespace, windows: [{window: 1m, hard: {pods: 5}}]}\n  breaker: {quotaExceeded: {}}\n"
    assert len(list_warnings(build_document(quota))) == 1
    assert list_warnings(build_document(quota + "  modes: {breaker: Audit}\n")) == []


@pytest.mark.parametrize(
    ("quota", "never_trips"),
    [
        ("", True),
        ("  quota: {per: Namespace}\n", True),
        ("  quota: {windows: [{window: 1m, hard: {pods: 5}}]}\n", False),
        ("  quota: {standing: {hard: {pods: 5}}}\n", False),
    ],
)
def test_quota_trigger_without_a_limit_of_the_service_is_a_warning(quota: str, *, never_trips: bool) -> None:
    pools = "pools: [{name: prod, windows: [{window: 1m, hard: {pods: 9}}]}]\n"
    document = build_document("  pool: prod\n" + quota + "  breaker: {quotaExceeded: {}}\n") + pools
    assert (
        any("never trips: the service has no limit of its own" in line for line in list_warnings(document))
        is never_trips
    )


@pytest.mark.parametrize(
    "toleration",
    [
        "{operator: Exists}",
        "{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 0}",
        "{key: a}",
        "{key: a, value: b}",
        '{key: a, operator: Gt, value: "5"}',
    ],
)
def test_tolerations_that_kubernetes_accepts_are_valid(toleration: str) -> None:
    assert list_problems(build_document(f"  placement: {{tolerations: [{toleration}]}}\n")) == []


@pytest.mark.parametrize(
    "toleration",
    [
        "{key: a, operator: Lt}",
        '{key: a, operator: Lt, value: "+5"}',
        '{key: a, operator: Lt, value: "-0"}',
        '{key: a, operator: Lt, value: "9223372036854775808"}',
        "{key: a, operator: Gt, value: 1.5}",
        '{key: a, operator: Gt, value: "\u0663"}',
    ],
)
def test_numbers_that_kubernetes_cannot_compare_are_refused(toleration: str) -> None:
    assert len(list_problems(build_document(f"  placement: {{tolerations: [{toleration}]}}\n"))) == 1


@pytest.mark.parametrize(("number", "problem_count"), [(100, 0), (101, 1)])
@pytest.mark.parametrize("field", ["tolerations", "topologySpreadConstraints", "affinity"])
def test_placement_lists_have_at_most_100_entries(field: str, number: int, problem_count: int) -> None:
    entry = {
        "tolerations": "{{key: k{0}, operator: Exists}}",
        "topologySpreadConstraints": "{{topologyKey: k{0}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}}",
        "affinity": "{{matchExpressions: [{{key: k{0}, operator: Exists}}]}}",
    }[field]
    entries = f"[{', '.join(entry.format(index) for index in range(number))}]"
    if field == "affinity":
        entries = format_required_terms(entries)
    assert len(list_problems(build_document(f"  placement: {{{field}: {entries}}}\n"))) == problem_count


def format_required_terms(terms: str) -> str:
    return f"{{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("{key: a, operator: Gt, values: [x]}", "Gt takes a single whole number"),
        ("{key: a, operator: Within, values: [x]}", "not one of its values"),
        ("{key: a, operator: In}", "In needs values"),
        ("{key: a/, operator: Exists}", "not a label key"),
    ],
)
def test_expressions_that_kubernetes_refuses_are_refused(expression: str, reason: str) -> None:
    term = f"[{{matchExpressions: [{expression}]}}]"
    [line] = list_problems(build_document(f"  placement: {{affinity: {format_required_terms(term)}}}\n"))
    assert reason in line


def test_expression_that_fits_no_node_is_reported_by_itself() -> None:
    unsatisfiable = '{key: a, operator: Gt, values: ["9223372036854775808"]}'
    term = f"[{{matchExpressions: [{{key: a, operator: Exists}}, {unsatisfiable}]}}]"
    [line] = list_problems(build_document(f"  placement: {{affinity: {format_required_terms(term)}}}\n"))
    assert "no node can match a Gt [9223372036854775808]: " in line


def test_contradiction_of_several_expressions_names_the_nearest() -> None:
    exclusions = "{key: a, operator: NotIn, values: [x]}, {key: a, operator: NotIn, values: [y]}"
    term = f"[{{matchExpressions: [{exclusions}]}}]"
    stanzas = f"  placement: {{topology: [{{key: a, in: [x, y]}}], affinity: {format_required_terms(term)}}}\n"
    [line] = list_problems(build_document(stanzas))
    assert "a NotIn [y] contradicts topology in line 6, a In [x, y]: no node can match both" in line


PODS = "labelSelector: {matchLabels: {app: x}}"


@pytest.mark.parametrize(
    ("near", "away"),
    [
        (f"{{topologyKey: t, {PODS}}}", f"{{topologyKey: u, {PODS}}}"),
        (f"{{topologyKey: t, {PODS}}}", "{topologyKey: t, labelSelector: {matchLabels: {app: y}}}"),
        (f"{{topologyKey: t, {PODS}}}", f"{{topologyKey: t, {PODS}, namespaceSelector: {{}}}}"),
        (f"{{topologyKey: t, {PODS}, matchLabelKeys: [k]}}", f"{{topologyKey: t, {PODS}, mismatchLabelKeys: [k]}}"),
    ],
    ids=["another_topology", "other_pods", "other_namespaces", "other_label_keys"],
)
def test_pod_affinity_and_anti_affinity_to_different_pods_are_valid(near: str, away: str) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = f"{{podAffinity: {{{required}: [{near}]}}, podAntiAffinity: {{{required}: [{away}]}}}}"
    assert list_problems(build_document(f"  placement: {{affinity: {affinity}}}\n")) == []


def test_inherited_on_conflict_rule_needs_its_field_in_one_service() -> None:
    services = "services:\n- {name: a, match: {namespaces: [a]}}\n- {name: b, match: {namespaces: [b]}"
    document = HEAD + "defaults: {placement: {onConflict: {default: Keep, schedulerName: Keep}}}\n" + services
    assert ["sets no schedulerName" in line for line in list_warnings(document + "}\n")] == [True]
    assert list_warnings(document + ", placement: {schedulerName: s}}\n") == []


@pytest.mark.parametrize("value", ["0", "-5", "5", "1.5", "1e3", "9" * 70, "true", "[]", "{}", "null", "1d", "-1m"])
@pytest.mark.parametrize(
    "field",
    ["quota: {{windows: [{{window: {}, hard: {{pods: 1}}}}]}}", "breaker: {{openFor: {}, quotaExceeded: {{}}}}"],
)
def test_duration_in_a_remedy_is_valid(field: str, value: str) -> None:
    found = [line for line in list_problems(build_document(f"  {field.format(value)}\n")) if value in line]
    assert found or (value == "null" and "openFor" in field), "a null in a mapping removes a default"
    first, *_ = found or [""]
    example = first.rpartition("such as ")[2].partition(",")[0].partition(" or ")[0].partition(" (")[0]
    repaired = list_problems(build_document(f"  {field.format(example)}\n"))
    assert [line for line in repaired if example in line] == []


def test_remedy_quotes_a_number_only_if_the_text_is_valid() -> None:
    names = [
        list_problems(f"{HEAD}services:\n- name: {number}\n  match: {{namespaces: [a]}}\n") for number in ("-1", "7")
    ]
    assert [line.rpartition(": ")[2][:20] for (line,) in names] == ["use at most 63 of a-", '"7"']


def test_amount_above_the_largest_of_kubernetes_is_an_error() -> None:
    assert list_problems(build_document(f"  resources: {{container: {{max: {{memory: {2**63 - 1}}}}}}}\n")) == []
    [line] = list_problems(build_document("  resources: {container: {max: {memory: 8Ei}}}\n"))
    assert "8Ei: above 2^63 - 1, the largest quantity in Kubernetes: write a smaller amount" in line
