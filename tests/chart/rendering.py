"""Objects of each way of running: as Helm renders the chart, and as kubectl builds the manifests."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.chart.programs import helm
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.binaries import binaries
from tests.cluster.go_programs import NO_COLLECTIONS
from tests.harness.yaml_documents import parse_documents

Json = dict[str, Any]

CHART = Path(__file__).parents[2] / "manifests" / "chart"
_VALUES = Path(__file__).with_name("ways")
_OVERLAYS = sorted(path.name for path in (CHART.parent / "overlays").iterdir())
WAYS = {
    "memory": ("base",),
    "apiserver-files": ("base", "apiserver"),
    "monitoring": ("base", "monitoring"),
    "team-labels": ("base", "team-labels"),
    **{name: (f"overlays/{name}",) for name in _OVERLAYS},
}
"""The kustomizations of the manifests for each way."""
RELEASE = "podgate"
_EVERYBODY: list[Json] = [{}]
_PORTS = {"admission": 8443, "plain": 8081}
_LABELS_OF_HELM = {
    *(f"app.kubernetes.io/{name}" for name in ("instance", "managed-by", "version")),
    "helm.sh/chart",
}


def run_helm(*arguments: str | Path, home: Path, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm in the chart's namespace, with a home of its own."""
    variables = {"HOME": str(home), "PATH": os.defpath, "KUBECONFIG": str(kubeconfig or home / "no-kubeconfig")}
    variables |= NO_COLLECTIONS
    return subprocess.run(
        [helm(), "--namespace", NAMESPACE, *arguments], env=variables, check=False, capture_output=True, text=True
    )


def templates(home: Path, *arguments: str | Path) -> str:
    """Return the rendered templates."""
    done = run_helm("template", RELEASE, CHART, *arguments, home=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(home: Path, *arguments: str | Path) -> str:
    """Return the error with which Helm refuses values."""
    done = run_helm("template", RELEASE, CHART, *arguments, home=home)
    assert done.returncode != 0, done.stdout
    return done.stderr


def values(way: str) -> tuple[str | Path, ...]:
    """Return Helm's options for a way."""
    return ("--values", _VALUES / f"{way}.yaml")


def render_kustomization(way: str) -> list[Json]:
    """Return the objects of the manifests. Helm does not create the namespace of its release."""
    return [document for folder in WAYS[way] for document in _run_kustomize(folder) if document["kind"] != "Namespace"]


@cache
def _run_kustomize(folder: str) -> list[Json]:
    command = (binaries().kubectl, "kustomize", CHART.parent / folder)
    done = subprocess.run(command, env={**os.environ, **NO_COLLECTIONS}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return parse_documents(done.stdout)


def index_comparable(objects: list[Json]) -> dict[str, Json]:
    """Return the objects by kind and name, without what may differ between both."""
    found: dict[str, Json] = {}
    for document in objects:
        metadata = document["metadata"]
        key = f"{document['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        assert key not in found, f"{key} is rendered twice"
        found[key] = _normalize(document)
    return found


def _normalize(document: Json) -> Json:
    """Return an object without Helm's labels, and without the order of what has none."""
    copy: Json = json.loads(json.dumps(document))
    labels = copy["metadata"]["labels"]
    copy["metadata"]["labels"] = {name: text for name, text in labels.items() if name not in _LABELS_OF_HELM}
    match copy:
        case {"kind": "Deployment" | "DaemonSet", "spec": {"template": {"spec": {"containers": containers}}}}:
            for container in containers:
                container["args"].sort()
        case {"kind": "ConfigMap", "data": {"identities.yaml": text}}:
            copy["data"]["identities.yaml"] = yaml.safe_load(text)
        case {"kind": "NetworkPolicy", "spec": {"ingress": rules}}:
            ports = [(rule.get("from", _EVERYBODY), port) for rule in rules for port in rule["ports"]]
            numbered = [(peers, {**port, "port": _PORTS.get(port["port"], port["port"])}) for peers, port in ports]
            copy["spec"]["ingress"] = sorted(
                [[port, peer] for peers, port in numbered for peer in peers], key=json.dumps
            )
    return copy
