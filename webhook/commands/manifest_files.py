"""Manifest files for the paths on a command line: files, and the manifests in folders."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from webhook.errors import UserError

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml"})


def list_manifest_files(given: Sequence[Path], *, recursive: bool) -> Iterator[Path | UserError]:
    """Yield the files to read, in order; a UserError for a folder without any.

    In a folder, files that end in .yaml, .yml or .json are read, as kubectl does.
    """
    for path in given:
        if str(path) == "-" or not path.is_dir():
            yield path
            continue
        try:
            found = list(_walk_folder(path, recursive=recursive))
        except OSError as error:
            yield UserError(f"{error.filename}: cannot be read: {error.strerror}", "give a readable folder")
            continue
        yield from found
        if not found:
            deeper = "" if recursive else ", or -R for the folders in it"
            yield UserError(f"{path}: no .yaml, .yml or .json file in it", f"give a folder with manifests{deeper}")


def _walk_folder(folder: Path, *, recursive: bool) -> Iterator[Path]:
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(folders) if recursive else []
        for name in sorted(names):
            path = Path(place, name)
            if name in _KUSTOMIZATIONS:
                remedy = f"pipe its output: kubectl kustomize {place} | podgate review -"
                click.echo(f"note: {path}: not a manifest, skipped: {remedy}", err=True)
            elif path.suffix in _SUFFIXES:
                yield path


def _refuse(error: OSError) -> None:
    raise error
