"""Findings of `podgate review` and warnings of the server about generated workloads, compared with their Pods."""

import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.generated_workloads import ID, GeneratedSet, generate, id_of
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate

EXAMPLES = int(os.environ.get("PODGATE_TEST_EXAMPLES", "40"))
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
BATCH = 125
_CREATED = re.compile(r"/(w\d{3})(?:-[a-z0-9]{5})?\b")
_DENIED = re.compile(r"denied the request: (?P<code>\w+): (?:service (?P<service>[\w-]+): )?")
DENIED = "denied"


class Outcome(NamedTuple):
    """The service of a Pod, and whether it was denied."""

    service: str | None
    is_denied: bool


SETS = [
    pytest.param(SEED + number, min(BATCH, EXAMPLES - first), number % 2 == 0, id=f"set-{number}")
    for number, first in enumerate(range(0, EXAMPLES, BATCH))
]


@pytest.mark.parametrize(("seed", "count", "strict"), SETS)
def test_every_verdict_equals_the_outcome_of_its_pods(
    plane: ControlPlane, identities: Identities, tmp_path: Path, seed: int, count: int, *, strict: bool
) -> None:
    generated_set = generate(seed, count, strict=strict)
    verdicts = _review(generated_set, tmp_path)
    with install_podgate(plane, identities.files, generated_set.policy, generated_set.namespaces) as installation:
        installation.wait_for_calls()
        warnings = _create(installation, generated_set)
        outcomes = _outcomes(installation, generated_set)
    faults_by_name = {}
    for document in generated_set.objects:
        name = id_of(document)
        faults = [*_faults(verdicts[name], warnings.get(name, []), outcomes[name])]
        if faults:
            faults_by_name[name] = (faults, verdicts[name]["decision"], warnings.get(name), outcomes[name], document)
    decisions = Counter(line["decision"] for line in verdicts.values())
    kinds = Counter(document["kind"] for document in generated_set.objects)
    print(f"\nseed {seed}, {'strict' if strict else 'lenient'}: {count} workloads {dict(kinds)}: {dict(decisions)}")  # noqa: T201
    assert faults_by_name == {}
    assert decisions["Depends"] < count / 2, "too many verdicts depend on unknown values"


def _faults(verdict: dict[str, Any], warnings: list[str], outcomes: set[Outcome]) -> Any:
    """Yield the statements of review and server that the outcomes contradict."""
    decision, service = verdict["decision"], verdict["service"]
    if decision == "Depends":
        possible = {Outcome(dependency["service"], dependency["denied"]) for dependency in verdict["dependsOn"]}
        if not outcomes <= possible:
            yield f"review: one of {possible}"
        if any(_claims_denial(warning) for warning in verdict["warnings"]):
            yield "review: claims a denial"
    elif outcomes != {Outcome(service, decision == "Deny")}:
        yield f"review: {decision} by {service}"
    denials = {outcome.is_denied for outcome in outcomes}
    if any(_claims_denial(warning) for warning in warnings):
        if denials != {True}:
            yield "server: claims a denial"
    elif not any("will be denied if" in warning for warning in warnings) and denials != {False}:
        yield "server: claims none"


def _claims_denial(warning: str) -> bool:
    return "will be denied: " in warning


def _review(generated_set: GeneratedSet, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the output of `podgate review` for each object."""
    policy, manifest = folder / "policy.yaml", folder / "objects.json"
    policy.write_text(generated_set.policy)
    manifest.write_text(json.dumps({"kind": "List", "items": generated_set.objects}))
    done = podgate("review", str(manifest), "--policy", str(policy), "-o", "json")
    assert done.code in {0, 3}, done.err
    return {id_of(document): line for document, line in zip(generated_set.objects, done.lines, strict=True)}


def _create(installation: Installation, generated_set: GeneratedSet) -> dict[str, list[str]]:
    """Create all objects; return the warnings about each."""
    object_list = {"apiVersion": "v1", "kind": "List", "items": generated_set.objects}
    done = installation.plane.kubectl("create", "-f", "-", input=json.dumps(object_list))
    assert len(done.stdout.splitlines()) == len(generated_set.objects)
    warnings: dict[str, list[str]] = {}
    for line in done.stderr.splitlines():
        name = _CREATED.search(line)
        assert name is not None, line
        warnings.setdefault(name[1], []).append(line)
    exempt_kinds = (
        {"DaemonSet"} if "daemonSets" not in (yaml.safe_load(generated_set.policy).get("exemptions") or {}) else set()
    )
    reviewed_count = sum(document["kind"] not in exempt_kinds for document in generated_set.objects)
    reviews = sum(server.total("podgate_workload_reviews_total") for server in installation.servers)
    assert reviews >= reviewed_count, "the API server did not call the webhook for all workloads"
    return warnings


def _outcomes(installation: Installation, generated_set: GeneratedSet) -> dict[str, set[Outcome]]:
    """Wait for a Pod or a denial of every workload; return the outcomes."""
    names = {id_of(document) for document in generated_set.objects}

    def find_outcomes() -> dict[str, set[Outcome]] | None:
        time.sleep(1)  # listing all objects is expensive for the API server
        outcomes_by_name: dict[str, set[Outcome]] = {}
        for namespace in generated_set.namespaces:
            for pod in installation.pods(namespace):
                labels, annotations = pod["metadata"]["labels"], pod["metadata"].get("annotations", {})
                # Without the annotation the Pod is exempt, and the label is the author's.
                service = labels.get("podgate.io/service") if "podgate.io/policy-hash" in annotations else None
                outcomes_by_name.setdefault(labels[ID], set()).add(Outcome(service, is_denied=False))
            events = installation.plane.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
            for event in events:
                denied = _DENIED.search(event["message"])
                if denied is not None and denied["code"] != "MutationMissing":  # a skipped call is retried
                    workload_name = event["involvedObject"]["name"][:4]
                    outcomes_by_name.setdefault(workload_name, set()).add(Outcome(denied["service"], is_denied=True))
        return outcomes_by_name if names <= outcomes_by_name.keys() else None

    description = "a Pod or a denial of each workload"
    return dict(installation.plane.wait(find_outcomes, description))
