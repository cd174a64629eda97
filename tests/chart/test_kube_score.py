"""kube-score has no findings on the shipped objects except those that are accepted here with a reason."""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.chart.programs import kube_score
from tests.chart.rendering import WAYS, render_kustomization, templates
from tests.cluster.go_programs import NO_COLLECTIONS
from tests.harness.yaml_documents import parse_documents

OLDEST_KUBERNETES = "v1.30"
PASSED = 10
SERVERS = ("podgate", "podgate-controller", "podgate-extender", "podgate-scheduler")
WRITER = "podgate-apiserver-files"
ACCEPTED = {
    ("CPU limit is not set", *SERVERS, WRITER): "it would delay admissions; memory is limited",
    ("Container has the same readiness and liveness probe", "podgate-scheduler"): "older versions have no /readyz",
    ("Deployment does not have a host podAntiAffinity set", *SERVERS): "topologySpreadConstraints spread the replicas",
    ("Deployment few replicas", "podgate"): "with counters in memory only one server may count",
    ("Ephemeral Storage limit is not set", *SERVERS, WRITER): "the root is read-only, and kubelets rotate the logs",
    ("Ephemeral Storage request is not set", *SERVERS, WRITER): "the root is read-only, and kubelets rotate the logs",
    ("ImagePullPolicy is not set to Always", *SERVERS, WRITER): "it must start while the registry is unavailable",
    ("The container is running with a low user ID", WRITER): "only root may write kube-apiserver's files",
    ("The container running with a low group ID", WRITER): "only root may write kube-apiserver's files",
    ("The pod does not have a matching NetworkPolicy", WRITER): "it opens no port",
    (
        "The pod does not have a matching egress NetworkPolicy",
        *SERVERS,
    ): "whom they call is unknown",
}
"""Reasons by what kube-score says and the names of objects."""

RENDERED = ("store.type=redis", "store.url=rediss://redis:6379/0", "server.replicas=2", "store.tls.secretName=tls")


def findings(objects: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the findings, each with the name of its object."""
    text = "---\n".join(json.dumps(document) + "\n" for document in objects)
    command = [kube_score(), "score", "--kubernetes-version", OLDEST_KUBERNETES, "--output-format", "json", "-"]
    environment = {**os.environ, **NO_COLLECTIONS}
    done = subprocess.run(command, input=text, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode in {0, 1}, done.stderr
    return {
        (comment["summary"], scored["object_meta"]["name"])
        for scored in json.loads(done.stdout)
        for check in scored["checks"]
        for comment in check["comments"] or ()
        if not check["skipped"] and check["grade"] < PASSED
    }


def list_accepted() -> set[tuple[str, str]]:
    return {(wrong, name) for wrong, *names in ACCEPTED for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_manifests_have_no_other_findings(way: str) -> None:
    """The chart renders the same objects (test_chart.py)."""
    assert findings(render_kustomization(way)) - list_accepted() == set()


def test_chart_with_values_that_no_manifest_has_has_no_other_findings(tmp_path: Path) -> None:
    assert findings(parse_documents(templates(tmp_path, "--set", ",".join(RENDERED)))) - list_accepted() == set()


def test_each_accepted_finding_exists() -> None:
    assert list_accepted() == set.union(*(findings(render_kustomization(way)) for way in WAYS))


def test_kube_score_finds_what_is_wrong() -> None:
    objects = json.loads(json.dumps(render_kustomization("memory")))
    [pod] = [document["spec"]["template"]["spec"] for document in objects if document["kind"] == "Deployment"]
    del pod["containers"][0]["resources"]["limits"]["memory"]
    pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = False
    planted = {"Memory limit is not set", "The pod has a container with a writable root filesystem"}
    assert findings(objects) - list_accepted() == {(wrong, "podgate") for wrong in planted}
