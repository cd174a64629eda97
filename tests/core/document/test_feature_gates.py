import pytest

from tests.core.document.documents import HEAD, build_document, list_problems, list_warnings
from webhook.core.document import Purpose
from webhook.core.document.feature_gates import NOT_EVERYWHERE, Stanza
from webhook.core.document.schema import build_merged_schema

SELECTOR = HEAD + "services:\n- name: a\n  match: {namespaceSelector: {matchLabels: {tier: prod}}}\n"
PUSHED = build_document("  breaker:\n    outcomes: {source: Pushed, reporters: [edge]}\n    errorRate: {}\n")
POD_START = PUSHED.replace("Pushed, reporters: [edge]", "PodStart").replace("{}", "{interval: 1m}")
FLEET = (
    HEAD
    + "pools:\n- {name: prod, scope: Fleet, windows: [{window: 1m, hard: {pods: 9}}]}\n"
    + "services:\n- name: a\n  match: {namespaces: [shop]}\n  pool: prod\n"
    + "  quota: {scope: Fleet, windows: [{window: 1s, hard: {pods: 5}}]}\n"
    + "- {name: without-a-quota-of-its-own, match: {namespaces: [shop-2]}, pool: prod}\n"
)
STANDING = build_document("  quota: {standing: {hard: {pods: 5}, surge: 1}}\n")
ALONE = {Purpose.SERVE_ALONE, Purpose.SERVE_ALONE_IN_PROCESS}
IN_PROCESS = {Purpose.SERVE_IN_PROCESS, Purpose.SERVE_ALONE_IN_PROCESS}


@pytest.mark.parametrize("purpose", list(Purpose))
def test_pushed_outcomes_are_supported_by_every_command(purpose: Purpose) -> None:
    assert list_problems(PUSHED, purpose) == []


def test_pod_start_outcomes_are_refused_only_without_a_cluster() -> None:
    for purpose in ALONE:
        [refusal] = list_problems(POD_START, purpose)
        place = "7:24: services[0].breaker.outcomes.source: PodStart"
        assert refusal == (
            f"{place}: `serve` runs without a cluster, whose Pods it could watch: give it --kubeconfig, or write Pushed"
        )
    for purpose in set(Purpose) - ALONE:
        assert list_problems(POD_START, purpose) == []
    assert list_warnings(POD_START) == []


def test_namespace_selectors_are_refused_only_without_a_cluster() -> None:
    for purpose in ALONE:
        [refusal] = list_problems(SELECTOR, purpose)
        assert "services[0].match.namespaceSelector: {...}: `serve` runs without a cluster: give it --k" in refusal
    for purpose in set(Purpose) - ALONE:
        assert list_problems(SELECTOR, purpose) == []
    assert list_warnings(SELECTOR) == []


def test_limits_on_live_pods_are_refused_only_without_a_cluster() -> None:
    for purpose in ALONE:
        [refusal] = list_problems(STANDING, purpose)
        assert (
            "quota.standing: {...}: `serve` runs without a cluster, whose Pods it could watch: give it --kubec"
            in refusal
        )
    for purpose in set(Purpose) - ALONE:
        assert list_problems(STANDING, purpose) == []
    assert list_warnings(STANDING) == []


def test_scope_fleet_is_refused_only_with_counters_in_memory() -> None:
    for purpose in IN_PROCESS:
        [on_the_pool, on_the_member] = list_problems(FLEET, purpose)
        assert "pools[0].scope: Fleet: `serve --store memory` counts only its own Pods: give it --st" in on_the_pool
        assert "services[0].quota.scope: Fleet: `serve --store memory` counts only its own" in on_the_member
    for purpose in set(Purpose) - IN_PROCESS:
        assert list_problems(FLEET, purpose) == []
    assert list_warnings(FLEET) == []


def test_purpose_of_serve_depends_on_cluster_and_store() -> None:
    kinds = {
        (alone, in_memory): Purpose.from_setup(alone=alone, in_process=in_memory)
        for alone in (True, False)
        for in_memory in (True, False)
    }
    assert kinds[False, False] is Purpose.SERVE
    assert {kind for (alone, _), kind in kinds.items() if alone} == ALONE
    assert {kind for (_, in_memory), kind in kinds.items() if in_memory} == IN_PROCESS


@pytest.mark.parametrize("purpose", list(Purpose))
def test_pools_are_supported_by_every_command(purpose: Purpose) -> None:
    assert list_problems(FLEET.replace("Fleet", "Cluster"), purpose) == []


@pytest.mark.parametrize(
    "stanza",
    [
        "  quota: {windows: [{window: 1m, hard: {pods: 5}}], queue: {maxPods: 5}}\n",
        "  quota: {windows: [{window: 1m, hard: {pods: 5}}]}\n  breaker: {quotaExceeded: {}, whenOpen: Queue}\n",
    ],
)
def test_queues_are_refused_only_without_a_cluster(stanza: str) -> None:
    for purpose in set(Purpose) - ALONE:
        assert list_problems(build_document(stanza), purpose) == []
    for purpose in ALONE:
        [line] = list_problems(build_document(stanza), purpose)
        assert ": `serve` runs without a cluster, whose waiting Pods it could release: give it --kubeconfig" in line


@pytest.mark.parametrize(
    "stanza", ["placement: {}", "resources: {}", "quota: {queue: {}, windows: [{window: 1m, hard: {pods: 1}}]}"]
)
def test_empty_stanza_is_valid(stanza: str) -> None:
    assert list_problems(build_document(f"  {stanza}\n"), Purpose.SERVE) == []


@pytest.mark.parametrize("stanza", NOT_EVERYWHERE, ids=lambda stanza: ".".join(stanza.path))
def test_feature_gate_names_an_existing_field(stanza: Stanza) -> None:
    part = build_merged_schema()
    for step in stanza.path:
        part = part["items"] if step == "*" else part["properties"][step]
    assert stanza.word is None or stanza.word in part["enum"]
