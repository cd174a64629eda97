"""The shipped manifests, parsed: objects, arguments of the Deployment, and commands of the README."""

import re
from pathlib import Path
from typing import Any

from tests.harness.yaml_documents import parse_documents
from webhook.core.installation.kustomization import build_folder as kustomize
from webhook.operations.shipped_manifests import read_manifest_files

FOLDER = Path(__file__).parents[2] / "manifests"
WEBHOOKS = FOLDER / "50-webhooks.yaml"
PLACEHOLDER = b"PLACEHOLDER: podgate policy webhooks --ca FILE puts your CA here"


def objects(name: str) -> list[dict[str, Any]]:
    """Return the objects of one file."""
    return parse_documents((FOLDER / name).read_text())


def build_kustomization(kustomization: str) -> list[dict[str, Any]]:
    """Return the objects of a kustomization."""
    return kustomize(read_manifest_files(), kustomization)


def deployment(kustomization: str) -> dict[str, Any]:
    """Return the server's Deployment of a kustomization."""
    [found] = [
        document
        for document in build_kustomization(kustomization)
        if (document["kind"], document["metadata"]["name"]) == ("Deployment", "podgate")
    ]
    return found


def policy() -> str:
    [config_map] = objects("20-policy.yaml")
    text: str = config_map["data"]["policy.yaml"]
    return text


def pod_spec() -> dict[str, Any]:
    """Return the spec of the Deployment's Pods."""
    [deployment] = objects("base/30-deployment.yaml")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def arguments() -> dict[str, str]:
    """Return the flags of the server in the Deployment."""
    [container] = pod_spec()["containers"]
    return dict(argument.split("=", 1) for argument in container["args"])


def steps() -> list[str]:
    """Return the commands of each step of the README."""
    return re.findall(r"^```sh\n(.+?)^```$", (FOLDER / "README.md").read_text(), re.DOTALL | re.MULTILINE)
