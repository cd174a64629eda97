"""Kustomization: the objects that its resources, components and patches make, as the shipped manifests use them."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from posixpath import join, normpath
from typing import Any

import jsonpatch
import yaml

from webhook.core.installation.objects import Json

Files = Mapping[str, Sequence[Json]]
"""The documents of each file, by its path."""
_FILE = "kustomization.yaml"


def build_folder(files: Files, folder: str) -> list[Json]:
    """Return the objects of the kustomization in a folder, as `kubectl kustomize` does."""
    [kustomization] = files[normpath(join(folder, _FILE))]
    return build_objects(files, kustomization, folder)


def build_objects(files: Files, kustomization: Json, folder: str = ".") -> list[Json]:
    """Return the objects of a kustomization whose paths are relative to `folder`."""
    return _add_kustomization(files, kustomization, folder, [])


def _add_kustomization(files: Files, kustomization: Json, folder: str, former: list[Json]) -> list[Json]:
    """Return `former` with the resources, components and patches of a kustomization, in this order."""
    found = [*former, *_list_resources(files, kustomization, folder)]
    for name in kustomization.get("components", ()):
        component = normpath(join(folder, name))
        [document] = files[join(component, _FILE)]
        found = _add_kustomization(files, document, component, found)
    for entry in kustomization.get("patches", ()):
        found = list(_apply_patch(found, entry))
    return found


def _list_resources(files: Files, kustomization: Json, folder: str) -> Iterator[Json]:
    for name in kustomization.get("resources", ()):
        path = normpath(join(folder, name))
        if normpath(join(path, _FILE)) in files:
            yield from build_folder(files, path)
        else:
            yield from deepcopy([*files[path]])


def _apply_patch(documents: list[Json], entry: Json) -> Iterator[Json]:
    """Yield the objects after a patch: JSON 6902 operations for its target, or the deletion of an object."""
    patch: Any = yaml.safe_load(entry["patch"])
    if isinstance(patch, dict):
        if patch.get("$patch") != "delete":
            raise ValueError("a patch is a list of JSON 6902 operations, or $patch: delete")
        target = {"kind": patch["kind"], "name": patch["metadata"]["name"]}
        yield from (document for document in documents if not _is_target(document, target))
        return
    for document in documents:
        yield jsonpatch.apply_patch(document, patch) if _is_target(document, entry["target"]) else document


def _is_target(document: Json, target: Mapping[str, str]) -> bool:
    return bool((document["kind"], document["metadata"]["name"]) == (target["kind"], target["name"]))
