"""Document of a kubeconfig: its files merged as kubectl merges them, with absolute paths."""

import errno
import os
from pathlib import Path
from typing import Any

import yaml

from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

_BYTES_MAX = 4 << 20
_ENTRIES = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""Lists of named entries, and the key of an entry's value."""
_PATHS = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}
"""Fields that are paths, relative to the folder of their file."""

Json = dict[str, Any]


def load_kubeconfig(kubeconfig: Kubeconfig) -> Json:
    """Return the merged document. UserError: no file is there, or one of them cannot be used.

    The first entry of a name is taken whole, and the first current-context that is set, as by client-go's
    ClientConfigLoadingRules.
    """
    merged: Json = {name: [] for name in _ENTRIES} | {"current-context": ""}
    documents = [(path, document) for path in kubeconfig.files if (document := _read(path)) is not None]
    if not documents:
        raise _make_unreadable_error(kubeconfig, os.strerror(errno.ENOENT))
    for path, document in documents:
        for name in _ENTRIES:
            known = {entry["name"] for entry in merged[name]}
            merged[name] += [entry for entry in _list_entries(document, name, path) if entry["name"] not in known]
        merged["current-context"] = merged["current-context"] or document.get("current-context") or ""
    if kubeconfig.context or merged["current-context"]:
        return merged
    raise make_unusable_error(kubeconfig, "current-context is not set")


def make_unusable_error(kubeconfig: Kubeconfig | Path, reason: str) -> UserError:
    """Return the error of a kubeconfig, with the kubectl command that tests it."""
    files = str(kubeconfig)
    variable = f"KUBECONFIG={files} kubectl" if os.pathsep in files else f"kubectl --kubeconfig {files}"
    return UserError(f"{files}: not a usable kubeconfig: {reason}", f"try it with: {variable} get --raw /readyz")


def find_named(entries: list[Json], name: Any, key: str) -> Json:
    """Return the value of the entry of a name; empty without one."""
    return next((entry.get(key) or {} for entry in entries if entry["name"] == name), {})


def _read(path: Path) -> Json | None:
    """Return the document of a file; None if it is not there."""
    try:
        with path.open("rb") as file:
            document = yaml.safe_load(file.read(_BYTES_MAX))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _make_unreadable_error(path, error.strerror) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)  # the rest of the error may quote the file
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise make_unusable_error(path, f"{where}not YAML") from None
    if not isinstance(document, dict | None):
        raise make_unusable_error(path, "not a mapping")
    return document or {}


def _make_unreadable_error(kubeconfig: Kubeconfig | Path, reason: str | None) -> UserError:
    return UserError(f"{kubeconfig}: cannot read the kubeconfig: {reason}", "check the path and its permissions")


def _list_entries(document: Json, name: str, path: Path) -> list[Json]:
    """Return the entries of a list, with absolute paths in their values."""
    found = [] if document.get(name) is None else document[name]
    is_list = isinstance(found, list) and all(isinstance(entry, dict) for entry in found)
    if not is_list or not all(isinstance(entry.get("name"), str) for entry in found):
        raise make_unusable_error(path, f"{name}: not a list of entries with a name")
    names = [entry["name"] for entry in found]
    if len(set(names)) < len(names):
        raise make_unusable_error(path, f"{name}: a name is used twice")
    return [_resolve_paths(entry, name, path.absolute().parent) for entry in found]


def _resolve_paths(entry: Json, name: str, folder: Path) -> Json:
    key = _ENTRIES[name]
    value = entry.get(key)
    if not isinstance(value, dict):
        return entry
    paths: Json = {field: str(folder / str(value[field])) for field in _PATHS.get(name, ()) if value.get(field)}
    command = value.get("exec")
    if isinstance(command, dict) and os.sep in str(command.get("command", "")):  # a bare name is found by PATH
        paths["exec"] = {**command, "command": str(folder / str(command["command"]))}
    return {**entry, key: {**value, **paths}}
