"""Shipped manifests, parsed: data of the package."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

from webhook.core.document import configmap

Json = dict[str, Any]


@cache
def read_manifest_files() -> dict[str, list[Json]]:
    """Return the documents of each YAML file, by its path. Files of the chart are templates."""
    return dict(_parse_folder(files("manifests"), ""))


def read_example_policy() -> str:
    """Return the example policy, which only warns."""
    [config_map] = read_manifest_files()["20-policy.yaml"]
    text: str = config_map["data"][configmap.KEY]
    return text


def read_identities() -> list[Json]:
    """Return the entries of the shipped identities: for Podgate's own tokens, and for those of the cluster."""
    [config_map] = read_manifest_files()["base/21-identities.yaml"]
    entries: list[Json] = yaml.safe_load(config_map["data"]["identities.yaml"])
    return entries


def _parse_folder(folder: Traversable, prefix: str) -> "list[tuple[str, list[Json]]]":
    found = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != _CHART:
            found += _parse_folder(entry, f"{prefix}{entry.name}/")
        elif entry.is_file() and entry.name.endswith(".yaml"):
            documents = yaml.load_all(entry.read_text(), _LOADER)
            found.append((f"{prefix}{entry.name}", [document for document in documents if document]))
    return found


_CHART = "chart"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
