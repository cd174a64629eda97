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
from tests.cluster.generated_workloads import ID, GeneratedSet, generated, id_of
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, installed

EXAMPLES = int(os.environ.get("PODGATE_TEST_EXAMPLES", "60"))
SEED = int(os.environ.get("PODGATE_TEST_SEED", "1"))
BATCH = 125
_CREATED = re.compile(r"/(w\d{3})(?:-[a-z0-9]{5})?\b")
_DENIED = re.compile(r"denied the request: (?P<code>\w+): (?:service (?P<service>[\w-]+): )?")
DENIED = "denied"


class Outcome(NamedTuple):
    """What became of a Pod: whose it is, and whether it was let in."""

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
    made = generated(seed, count, strict=strict)
    reviewed = _reviewed(made, tmp_path)
    with installed(plane, identities.files, made.policy, made.namespaces) as installation:
        installation.wait_for_calls()
        warnings = _created(installation, made)
        became = _became(installation, made)
    wrong = {}
    for one in made.objects:
        name = id_of(one)
        found = [*_faults(reviewed[name], warnings.get(name, []), became[name])]
        if found:
            wrong[name] = (found, reviewed[name]["decision"], warnings.get(name), became[name], one)
    tally = Counter(line["decision"] for line in reviewed.values())
    kinds = Counter(one["kind"] for one in made.objects)
    print(f"\nseed {seed}, {'strict' if strict else 'lenient'}: {count} workloads {dict(kinds)}: {dict(tally)}")  # noqa: T201
    assert wrong == {}
    assert tally["Depends"] < count / 2, "a set in which most depends shows little"


def _faults(reviewed: dict[str, Any], warnings: list[str], became: set[Outcome]) -> Any:
    """Yield what was said and is not so."""
    decision, service = reviewed["decision"], reviewed["service"]
    if decision == "Depends":
        possible = {Outcome(one["service"], one["denied"]) for one in reviewed["dependsOn"]}
        if not became <= possible:
            yield f"review: one of {possible}"
        if any(_claims_denial(warning) for warning in reviewed["warnings"]):
            yield "review: claims a denial"
    elif became != {Outcome(service, decision == "Deny")}:
        yield f"review: {decision} by {service}"
    denials = {outcome.is_denied for outcome in became}
    if any(_claims_denial(warning) for warning in warnings):
        if denials != {True}:
            yield "server: claims a denial"
    elif not any("will be denied if" in warning for warning in warnings) and denials != {False}:
        yield "server: claims none"


def _claims_denial(warning: str) -> bool:
    return "will be denied: " in warning


def _reviewed(made: GeneratedSet, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the line of `podgate review` on each object."""
    policy, manifest = folder / "policy.yaml", folder / "objects.json"
    policy.write_text(made.policy)
    manifest.write_text(json.dumps({"kind": "List", "items": made.objects}))
    done = podgate("review", str(manifest), "--policy", str(policy), "-o", "json")
    assert done.code in {0, 3}, done.err
    return {id_of(one): line for one, line in zip(made.objects, done.lines, strict=True)}


def _created(installation: Installation, made: GeneratedSet) -> dict[str, list[str]]:
    """Create everything; return the warnings about each object."""
    everything = {"apiVersion": "v1", "kind": "List", "items": made.objects}
    done = installation.plane.kubectl("create", "-f", "-", input=json.dumps(everything))
    assert len(done.stdout.splitlines()) == len(made.objects)
    warnings: dict[str, list[str]] = {}
    for line in done.stderr.splitlines():
        name = _CREATED.search(line)
        assert name is not None, line
        warnings.setdefault(name[1], []).append(line)
    spared = {"DaemonSet"} if "daemonSets" not in (yaml.safe_load(made.policy).get("exemptions") or {}) else set()
    asked = sum(one["kind"] not in spared for one in made.objects)
    reviews = sum(server.total("podgate_workload_reviews_total") for server in installation.servers)
    assert reviews >= asked, "the API server went on without asking: no warning could come"
    return warnings


def _became(installation: Installation, made: GeneratedSet) -> dict[str, set[Outcome]]:
    """Wait for a Pod, or a denial, of every workload; return what became of each."""
    names = {id_of(one) for one in made.objects}

    def all_there() -> dict[str, set[Outcome]] | None:
        time.sleep(1)  # to list everything costs the API server as much as to make it
        found: dict[str, set[Outcome]] = {}
        for namespace in made.namespaces:
            for pod in installation.pods(namespace):
                labels, annotations = pod["metadata"]["labels"], pod["metadata"].get("annotations", {})
                # Without the annotation the label is what the template's author wrote: an exempt Pod keeps it.
                service = labels.get("podgate.io/service") if "podgate.io/policy-hash" in annotations else None
                found.setdefault(labels[ID], set()).add(Outcome(service, is_denied=False))
            events = installation.plane.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
            for event in events:
                denied = _DENIED.search(event["message"])
                if denied is not None and denied["code"] != "MutationMissing":  # a call was skipped: it is tried again
                    of = event["involvedObject"]["name"][:4]
                    found.setdefault(of, set()).add(Outcome(denied["service"], is_denied=True))
        return found if names <= found.keys() else None

    what = "a Pod or a denial of each workload"
    return dict(installation.plane.wait(all_there, what))
