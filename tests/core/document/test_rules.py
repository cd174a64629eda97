"""Limits of each rule: valid documents next to those in `bad/`."""

import pytest

from tests.core.document.documents import HEAD, problems, warnings, with_service


def windows(hard: str) -> str:
    return with_service(f"  quota: {{windows: [{{window: 1m, hard: {{{hard}}}}}]}}\n")


@pytest.mark.parametrize(
    "resource",
    [
        *("pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "limits.cpu", "limits.memory"),
        *("hugepages-2Mi", "requests.hugepages-1Gi", "requests.nvidia.com/gpu", "requests.ephemeral-storage"),
    ],
)
def test_what_pods_take_can_be_limited(resource: str) -> None:
    assert problems(windows(f'"{resource}": 1')) == []


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
def test_what_no_pod_takes_cannot_be_limited(resource: str) -> None:
    [line] = problems(windows(f'"{resource}": 1'))
    assert line.startswith("6:")


def test_two_to_the_53_is_the_largest_limit() -> None:
    assert problems(windows(f"pods: {2**53}")) == []
    assert "above 2^53" in problems(windows(f"pods: {2**53 + 1}"))[0]
    assert "above 2^53" in problems(windows(f"cpu: {2**53 // 1000 + 1}"))[0], "cpu is counted in thousandths"


@pytest.mark.parametrize("window", ["1s", "90s", "1h30m", "720h", "1000ms", "0.5h"])
def test_a_window_is_any_whole_number_of_seconds_up_to_30_days(window: str) -> None:
    assert problems(with_service(f"  quota: {{windows: [{{window: {window}, hard: {{pods: 1}}}}]}}\n")) == []


@pytest.mark.parametrize("window", ["999ms", "1500ms", "720h1s", "-1m", "1m ", "60", '""', "1d"])
def test_anything_else_is_no_window(window: str) -> None:
    quoted = window if window.startswith('"') or window == "60" else f'"{window}"'
    assert len(problems(with_service(f"  quota: {{windows: [{{window: {quoted}, hard: {{pods: 1}}}}]}}\n"))) == 1


SHADOWS = [
    ("{namespaces: [a]}", "{namespaces: [a]}"),
    ("{namespaces: [a, b]}", "{namespaces: [b]}"),
    ('{namespaces: ["a*"]}', '{namespaces: [a, "ab*"]}'),
    ("{anyNamespace: true}", "{namespaceSelector: {matchLabels: {x: y}}}"),
    ("{anyNamespace: true}", "{anyNamespace: true}"),
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
    ("{namespaces: [a]}", "{anyNamespace: true}"),
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


@pytest.mark.parametrize(("first", "second"), SHADOWS)
def test_a_service_that_one_earlier_match_implies_away_is_an_error(first: str, second: str) -> None:
    [line] = problems(two_services(first, second))
    assert line.startswith("7:3: services[1].match: ")
    assert "service first above (line 5)" in line


@pytest.mark.parametrize(("first", "second"), REACHABLE)
def test_a_service_that_can_own_some_pod_is_none(first: str, second: str) -> None:
    assert problems(two_services(first, second)) == []


def test_a_rule_is_silent_where_one_of_its_own_fields_is_wrong_already() -> None:
    document = with_service("  breaker:\n    outcomes: {source: Pushd}\n    errorRate: {percent: 500}\n")
    assert [line.split(": ")[1] for line in problems(document)] == [
        "services[0].breaker.outcomes.source",
        "services[0].breaker.errorRate.percent",
    ]


def test_a_rule_speaks_where_only_other_fields_are_wrong() -> None:
    document = with_service(
        "  slaClass: 7\n  breaker:\n    outcomes: {source: Pushed}\n    errorRate: {percent: 500}\n"
    )
    assert [line.split(": ")[1] for line in problems(document)] == [
        "services[0].slaClass",
        "services[0].breaker.outcomes.reporters",
        "services[0].breaker.errorRate.percent",
    ]


def test_a_misspelled_field_is_not_called_absent_as_well() -> None:
    assert len(problems(with_service("  quota: {windos: [{window: 1m, hard: {pods: 1}}]}\n"))) == 1
    assert len(problems(HEAD + "servces:\n- {name: a, match: {namespaces: [a]}}\n")) == 2, "unknown, and required"


def test_a_pool_member_may_leave_the_limits_to_the_pool() -> None:
    document = with_service("  pool: prod\n  quota: {per: Namespace}\n")
    assert not any("limits nothing" in line for line in problems(document))


def test_a_breaker_that_only_counts_does_not_warn_about_namespaces() -> None:
    quota = "  quota: {per: Namespace, windows: [{window: 1m, hard: {pods: 5}}]}\n  breaker: {quotaExceeded: {}}\n"
    assert len(warnings(with_service(quota))) == 1
    assert warnings(with_service(quota + "  modes: {breaker: Audit}\n")) == []


@pytest.mark.parametrize(
    ("quota", "never"),
    [
        ("", True),
        ("  quota: {per: Namespace}\n", True),
        ("  quota: {windows: [{window: 1m, hard: {pods: 5}}]}\n", False),
        ("  quota: {standing: {hard: {pods: 5}}}\n", False),
    ],
)
def test_denials_by_a_pool_alone_are_no_quota_events(quota: str, *, never: bool) -> None:
    pools = "pools: [{name: prod, windows: [{window: 1m, hard: {pods: 9}}]}]\n"
    document = with_service("  pool: prod\n" + quota + "  breaker: {quotaExceeded: {}}\n") + pools
    assert any("never trips: the service has no limit of its own" in line for line in warnings(document)) is never


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
def test_tolerations_that_kubernetes_takes_are_taken(toleration: str) -> None:
    assert problems(with_service(f"  placement: {{tolerations: [{toleration}]}}\n")) == []


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
    assert len(problems(with_service(f"  placement: {{tolerations: [{toleration}]}}\n"))) == 1


@pytest.mark.parametrize(("number", "refused"), [(100, 0), (101, 1)])
@pytest.mark.parametrize("field", ["tolerations", "topologySpreadConstraints", "affinity"])
def test_lists_that_every_review_compares_with_the_pods_own_are_short(field: str, number: int, refused: int) -> None:
    entry = {
        "tolerations": "{{key: k{0}, operator: Exists}}",
        "topologySpreadConstraints": "{{topologyKey: k{0}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}}",
        "affinity": "{{matchExpressions: [{{key: k{0}, operator: Exists}}]}}",
    }[field]
    entries = f"[{', '.join(entry.format(index) for index in range(number))}]"
    if field == "affinity":
        entries = required_terms(entries)
    assert len(problems(with_service(f"  placement: {{{field}: {entries}}}\n"))) == refused


def required_terms(terms: str) -> str:
    return f"{{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("{key: a, operator: Gt, values: [x]}", "Gt takes a single whole number"),
        ("{key: a, operator: Within, values: [x]}", "not one of its values"),
        ("{key: a, operator: In}", "In needs values"),
        ("{key: a/, operator: Exists}", "not a label key"),
    ],
)
def test_expressions_that_kubernetes_refuses_are_refused(expression: str, says: str) -> None:
    term = f"[{{matchExpressions: [{expression}]}}]"
    [line] = problems(with_service(f"  placement: {{affinity: {required_terms(term)}}}\n"))
    assert says in line


def test_an_expression_that_no_node_fits_alone_is_not_blamed_on_another() -> None:
    alone = '{key: a, operator: Gt, values: ["9223372036854775808"]}'
    term = f"[{{matchExpressions: [{{key: a, operator: Exists}}, {alone}]}}]"
    [line] = problems(with_service(f"  placement: {{affinity: {required_terms(term)}}}\n"))
    assert "no node can match a Gt [9223372036854775808]: " in line


def test_what_contradicts_only_together_names_the_nearest() -> None:
    ways = "{key: a, operator: NotIn, values: [x]}, {key: a, operator: NotIn, values: [y]}"
    term = f"[{{matchExpressions: [{ways}]}}]"
    stanzas = f"  placement: {{topology: [{{key: a, in: [x, y]}}], affinity: {required_terms(term)}}}\n"
    [line] = problems(with_service(stanzas))
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
def test_near_and_away_may_be_asked_of_different_pods(near: str, away: str) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = f"{{podAffinity: {{{required}: [{near}]}}, podAntiAffinity: {{{required}: [{away}]}}}}"
    assert problems(with_service(f"  placement: {{affinity: {affinity}}}\n")) == []


def test_a_rule_of_on_conflict_needs_its_field_in_one_of_the_services_that_inherit_it() -> None:
    services = "services:\n- {name: a, match: {namespaces: [a]}}\n- {name: b, match: {namespaces: [b]}"
    document = HEAD + "defaults: {placement: {onConflict: {default: Keep, schedulerName: Keep}}}\n" + services
    assert ["sets no schedulerName" in line for line in warnings(document + "}\n")] == [True]
    assert warnings(document + ", placement: {schedulerName: s}}\n") == []


@pytest.mark.parametrize("written", ["0", "-5", "5", "1.5", "1e3", "9" * 70, "true", "[]", "{}", "null", "1d", "-1m"])
@pytest.mark.parametrize(
    "field",
    ["quota: {{windows: [{{window: {}, hard: {{pods: 1}}}}]}}", "breaker: {{openFor: {}, quotaExceeded: {{}}}}"],
)
def test_the_duration_that_a_remedy_names_is_taken(field: str, written: str) -> None:
    first, *_ = [line for line in problems(with_service(f"  {field.format(written)}\n")) if written in line]
    example = first.rpartition("such as ")[2].partition(",")[0].partition(" or ")[0].partition(" (")[0]
    repaired = problems(with_service(f"  {field.format(example)}\n"))
    assert [line for line in repaired if example in line] == []


def test_a_number_is_to_be_quoted_only_where_the_text_would_be_taken() -> None:
    names = [problems(f"{HEAD}services:\n- name: {number}\n  match: {{namespaces: [a]}}\n") for number in ("-1", "7")]
    assert [line.rpartition(": ")[2][:20] for (line,) in names] == ["use at most 63 of a-", '"7"']


def test_no_amount_is_more_than_kubernetes_holds() -> None:
    assert problems(with_service(f"  resources: {{container: {{max: {{memory: {2**63 - 1}}}}}}}\n")) == []
    [line] = problems(with_service("  resources: {container: {max: {memory: 8Ei}}}\n"))
    assert "8Ei: above 2^63 - 1, the largest quantity in Kubernetes: write a smaller amount" in line
