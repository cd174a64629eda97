"""Hundreds of generated Pods under generated policies with a real API server and real schedulers."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.cluster.placement.classes import classes, priority_class, runtime_class
from tests.cluster.placement.nodes import sample_nodes
from tests.cluster.placement.review_tap import tap_calls
from tests.cluster.placement.sample import Case, cases, document, resource_cases
from tests.cluster.placement.sample_run import (
    UNMATCHED,
    Outcome,
    delete_pods,
    rejection_without_podgate,
    run,
    wait_for_calls,
)
from tests.cluster.placement.verification import (
    OWNED,
    amounts_of,
    index_nodes,
    list_denied_fields,
    policy_allows,
    remove_empty,
    user_allows,
)
from tests.core.api_server import apply_defaults, compute_qos_class, find_owed_class
from tests.core.generating.vocabulary import (
    GLOBAL_DEFAULT,
    NAMESPACE,
    NAMESPACE_LABELS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
)
from tests.core.oracle import pod_affinity
from tests.core.oracle.nodes import Node, is_node_match
from tests.core.oracle.rewriting import HASH_ANNOTATION, find_faults
from tests.core.ranges_model import find_owed

COUNT = int(os.environ.get("PODGATE_TEST_EXAMPLES", "120"))
"""Number of Pods under placements, without those under rules for resources."""
RESOURCES_DRAWN = COUNT // 3
REVIEWED_EACH = 3
CLASSES = (
    # Without preemption a scheduled Pod stays on its node.
    *(
        priority_class(name, value, never=True, is_global_default=name == GLOBAL_DEFAULT)
        for name, value in PRIORITY_CLASSES.items()
    ),
    *(runtime_class(name, overhead) for name, overhead in RUNTIME_CLASSES.items()),
)


@pytest.fixture(scope="module")
def sample() -> list[Case]:
    return [*cases(COUNT), *resource_cases(RESOURCES_DRAWN)]


@pytest.fixture(scope="module")
def policy(sample: list[Case]) -> str:
    return document(sample)


@pytest.fixture(scope="module")
def all_outcomes(
    plane: ControlPlane, identities: Identities, sample: list[Case], policy: str
) -> Iterator[list[Outcome]]:
    with (
        classes(plane, *CLASSES),
        sample_nodes(plane),
        install_podgate(
            plane, identities.files, policy, [NAMESPACE, UNMATCHED], namespace_labels=NAMESPACE_LABELS
        ) as installation,
        tap_calls(installation.load_balancer, identities) as tap,
    ):
        wait_for_calls(plane, tap, sample[0])
        try:
            yield run(plane, tap, sample)
        finally:
            delete_pods(plane)


@pytest.fixture(scope="module")
def outcomes(all_outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes of the Pods under placements."""
    return [outcome for outcome in all_outcomes if "placement" in outcome.case.stanzas]


@pytest.fixture(scope="module")
def stored(all_outcomes: list[Outcome]) -> list[tuple[Outcome, dict[str, Any]]]:
    """Return the outcomes of admitted Pods, each with its stored Pod."""
    return [(outcome, outcome.stored) for outcome in all_outcomes if outcome.stored is not None]


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, all_outcomes: list[Outcome]) -> dict[str, Node]:
    """Return all nodes that the sample could use."""
    assert all_outcomes
    return index_nodes(plane.api.get("/api/v1/nodes")["items"])


def apply_patch(outcome: Outcome) -> dict[str, Any]:
    """Return the Pod of the first call with the patch of its response, applied by an independent library."""
    first = outcome.mutations[0]
    patched_pod: dict[str, Any] = jsonpatch.apply_patch(first.object, first.patch)
    return patched_pod


def test_sample_has_enough_admitted_and_rewritten_pods(all_outcomes: list[Outcome], outcomes: list[Outcome]) -> None:
    assert len(outcomes) == COUNT
    admitted = [outcome for outcome in all_outcomes if outcome.is_admitted]
    rewritten = [
        outcome
        for outcome in admitted
        if any("/spec/" in operation["path"] for operation in outcome.mutations[0].patch)
    ]
    assert len(admitted) >= COUNT * 3 // 5
    assert len(rewritten) >= COUNT // 4  # the sample depends on the modules that the process has imported


def test_api_server_rejects_no_pod_because_of_its_patch(plane: ControlPlane, all_outcomes: list[Outcome]) -> None:
    rejected = [outcome for outcome in all_outcomes if not outcome.is_admitted and not outcome.is_denied_by_podgate]
    rejected_patches = {
        outcome.case.name: (outcome.message, [mutation.patch for mutation in outcome.mutations])
        for outcome in rejected
        if not rejection_without_podgate(plane, outcome.case.pod)
    }
    assert rejected_patches == {}
    assert len(rejected) <= len(all_outcomes) // 20, "the API server rejects too many Pods of the sample"


def test_denial_names_exactly_the_conflicting_fields(outcomes: list[Outcome]) -> None:
    assert any(outcome.is_denied_by_podgate for outcome in outcomes)
    for outcome in outcomes:
        fields = re.findall(r"Placement(?:Conflict|NotAllowed): service \S+: ((?:spec|metadata)\.\S+)", outcome.message)
        assert sorted(fields) == sorted(list_denied_fields(outcome)), (outcome.case, outcome.message)
        assert len(fields) == outcome.message.count(": service "), outcome.message


def test_pods_are_denied_exactly_for_resources_that_only_their_user_can_mend(all_outcomes: list[Outcome]) -> None:
    denied: list[bool] = []
    for outcome in all_outcomes:
        if "resources" in outcome.case.stanzas and (outcome.is_admitted or outcome.is_denied_by_podgate):
            rules, final = outcome.case.stanzas["resources"], apply_defaults(apply_patch(outcome))
            found = {party for party, *_ in find_owed(final, rules) | find_owed_class(final, rules)}
            assert outcome.is_denied_by_podgate == ("user" in found), (outcome.message, outcome.case)
            denied.append(outcome.is_denied_by_podgate)
    assert len(set(denied)) == 2, "some are denied, some are not"


def test_each_pod_is_rewritten_as_its_policy_requires(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.is_admitted:
            before, after, case = outcome.mutations[0].object, apply_patch(outcome), outcome.case
            policy_hash = after["metadata"]["annotations"][HASH_ANNOTATION]
            assert find_faults(before, after, case.placement, case.service, policy_hash) == [], case


def test_reinvocation_changes_nothing(all_outcomes: list[Outcome]) -> None:
    reinvocations = [mutation for outcome in all_outcomes for mutation in outcome.mutations[1:]]
    assert reinvocations, "a plugin sets fields of a class, which causes a reinvocation"
    assert [mutation.patch for mutation in reinvocations if mutation.patch] == []


def test_stored_pod_equals_the_request_with_the_patch(stored: list[tuple[Outcome, dict[str, Any]]]) -> None:
    for outcome, stored_pod in stored:
        expected = pod_affinity.merge_label_keys(apply_patch(outcome))["spec"]
        for field in OWNED:
            assert stored_pod["spec"].get(field) == remove_empty(expected.get(field)), (field, outcome.case)


def test_stored_resources_equal_the_request_with_the_patch(stored: list[tuple[Outcome, dict[str, Any]]]) -> None:
    for outcome, stored_pod in stored:
        expected = apply_defaults(apply_patch(outcome))
        assert amounts_of(stored_pod) == amounts_of(expected), outcome.case
        assert stored_pod["status"]["qosClass"] == compute_qos_class(expected), outcome.case


def test_priority_and_overhead_are_those_of_the_classes(stored: list[tuple[Outcome, dict[str, Any]]]) -> None:
    for _, stored_pod in stored:
        spec = stored_pod["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (PRIORITY_CLASSES[spec["priorityClassName"]], "Never")
        assert spec.get("overhead") == RUNTIME_CLASSES.get(spec.get("runtimeClassName"))


def test_review_gives_what_was_recorded_the_same_patches(
    all_outcomes: list[Outcome], policy: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(policy)
    recorded = [mutation for outcome in all_outcomes[::REVIEWED_EACH] for mutation in outcome.mutations]
    paths = [tmp_path / f"{number}.json" for number in range(len(recorded))]
    for path, mutation in zip(paths, recorded, strict=True):
        path.write_text(json.dumps(mutation.review))
    namespaces = tmp_path / "namespaces.json"
    metadata = {"name": NAMESPACE, "labels": NAMESPACE_LABELS}
    namespaces.write_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    flags = ("--policy", tmp_path / "policy.yaml", "--namespaces", namespaces, "-o", "patch")
    result = podgate("review", *flags, *paths)
    assert [json.loads(line)["patch"] for line in result.out.splitlines()] == [
        mutation.patch for mutation in recorded
    ], result.err


def test_every_scheduled_pod_is_on_a_node_that_its_policy_allows(
    outcomes: list[Outcome], nodes: dict[str, Node]
) -> None:
    placed = {outcome.case.name: outcome for outcome in outcomes if outcome.node is not None}
    assert len(placed) >= COUNT // 3, "too few Pods were scheduled"
    assert len({outcome.node for outcome in placed.values()}) >= 10, "the Pods are on too few nodes"
    misplaced = [name for name, outcome in placed.items() if not policy_allows(outcome, nodes[str(outcome.node)])]
    assert misplaced == []


def test_stored_pod_fits_exactly_the_nodes_allowed_by_user_and_policy(
    stored: list[tuple[Outcome, dict[str, Any]]], nodes: dict[str, Node]
) -> None:
    for outcome, stored_pod in stored:
        fitting = {name for name, node in nodes.items() if is_node_match(stored_pod, node)}
        allowed = {name for name, node in nodes.items() if policy_allows(outcome, node) and user_allows(outcome, node)}
        assert fitting == allowed, outcome.case
