"""Limits of cpu that are taken out or forbidden, and amounts of init containers, in each command that shows them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Json, podgate, policy_text

OWN = "initContainer: {defaultRequest: {cpu: 1}, default: {memory: 1Gi}}"
CONTAINER = "defaultRequest: {cpu: 100m}, default: {memory: 256Mi}"
BOTH: Json = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}


def write_policy(path: Path, container: str, more: str = "") -> Path:
    resources = f"resources: {{container: {{{container}}}{more}}}"
    path.write_text(policy_text(f"- {{name: web, match: {{namespaces: [shop]}}, {resources}}}\n"))
    return path


@pytest.fixture
def policies(tmp_path: Path) -> tuple[Path, Path, Path]:
    return (
        write_policy(tmp_path / "plain.yaml", CONTAINER),
        write_policy(tmp_path / "removing.yaml", f"{CONTAINER}, remove: [limits.cpu]", f", {OWN}"),
        write_policy(tmp_path / "forbidding.yaml", f"{CONTAINER}, forbid: [limits.cpu]", f", {OWN}"),
    )


def build_pod(**spec: Any) -> Json:
    containers = [{"name": "app", "image": "i", "resources": BOTH}]
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": containers, **spec}}


def review(pod: Json, policy: Path) -> Json:
    done = podgate("review", "-", "--policy", policy, "-o", "json", "--explain", stdin=json.dumps(pod))
    found: Json = json.loads(done.out)
    return found


def list_trace(reviewed: Json, rule: str) -> list[str]:
    return [entry["found"] for entry in reviewed["trace"] if entry["found"].startswith(rule)]


def test_review_shows_what_is_taken_out_and_which_stanza_sized_each_container(
    policies: tuple[Path, Path, Path],
) -> None:
    starting = [
        {"name": "migrate", "image": "i"},
        {"name": "proxy", "image": "i", "restartPolicy": "Always", "resources": {"limits": {"cpu": "2"}}},
    ]
    found = review(build_pod(initContainers=starting), policies[1])
    assert found["warnings"] == [
        'Rewritten: container "app": limits.cpu 2 taken out (resources.container.remove)',
        'Rewritten: init container "proxy": limits.cpu 2 taken out (resources.container.remove)',
    ]
    migrate, proxy = (container["resources"] for container in found["pod"]["spec"]["initContainers"])
    assert migrate == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert proxy == {"requests": {"cpu": "2", "memory": "256Mi"}, "limits": {"memory": "256Mi"}}
    rule = "resources.container.remove[limits.cpu]"
    assert list_trace(found, rule) == [
        f'{rule}: container "app": limits.cpu, init container "proxy": limits.cpu',
        f"{rule}: holds",
    ]
    [wrote, _] = list_trace(found, "resources.initContainer.default[memory]")
    assert "migrate" in wrote
    assert "proxy" not in wrote


def test_review_denies_a_forbidden_limit_with_a_remedy(policies: tuple[Path, Path, Path]) -> None:
    found = review(build_pod(), policies[2])
    assert (found["decision"], found["status"]["code"]) == ("Deny", 403)
    assert list_trace(found, "resources.container.forbid") == [
        "resources.container.forbid[limits.cpu]: left: the validating half denies it",
        "resources.container.forbid[limits.cpu]: ResourcesOutside at spec.containers[0].resources.limits[cpu]",
    ]
    without = build_pod(containers=[{"name": "app", "image": "i"}])
    assert list_trace(review(without, policies[2]), "resources.container.forbid") == [
        "resources.container.forbid[limits.cpu]: no container has a limit of cpu",
        "resources.container.forbid[limits.cpu]: holds",
    ]


def test_render_shows_where_each_is_set(policies: tuple[Path, Path, Path]) -> None:
    lines = [line.split() for line in podgate("policy", "render", "web", "--policy", policies[1]).out.splitlines()]
    assert ["-", "limits.cpu", "#", "line", "5"] in lines
    assert ["initContainer:"] in lines


def test_lint_names_line_column_and_remedy(tmp_path: Path) -> None:
    bad = write_policy(tmp_path / "bad.yaml", "default: {cpu: 1}, remove: [limits.cpu, limits.memory]")
    done = podgate("policy", "lint", bad)
    assert done.code != 0
    assert (
        "services[0].resources.container.remove[1]: limits.memory: a container without a limit of memory"
        in done.out + done.err
    )
    assert f"{bad}:5:" in done.out + done.err


def test_diff_names_the_entries(policies: tuple[Path, Path, Path]) -> None:
    done = podgate("policy", "diff", policies[1], policies[2])
    assert done.out.splitlines() == [
        "service web",
        "  resources.container.remove[limits.cpu]: removed: limits.cpu",
        "  resources.container.forbid[limits.cpu]: added: limits.cpu",
    ]


def test_impact_and_replay_deny_recorded_pods_with_a_forbidden_limit(
    policies: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    plain, removing, forbidding = policies
    record = tmp_path / "events.jsonl"
    record.write_text(json.dumps({"at": 0, "pod": build_pod(), "namespace": "shop"}) + "\n")
    done = podgate("policy", "impact", forbidding, "--before", plain, "--record", record)
    assert "web: shop/p: denied, findings" in done.out.splitlines()
    assert (
        podgate("policy", "impact", removing, "--before", plain, "--record", record, "--fail-on", "denials").code == 0
    )
    assert "ResourcesOutside" in podgate("replay", record, "--policy", forbidding).out
    assert "ResourcesOutside" not in podgate("replay", record, "--policy", removing).out
