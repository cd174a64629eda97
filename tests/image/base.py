"""Base of the image, for machines that reach no image registry: Python 3.11 from Debian's packages.

It stands in for the base that the Dockerfile names, and is like it in what the Dockerfile relies on: `python` with
`venv`, no bytecode, no manual pages.
"""

import hashlib
import shutil
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import hold_lock
from tests.image.programs import run

SUITE = "bookworm"
"""Debian's release with Python 3.11."""
EPOCH = 315532800
"""Time of files in the archive, so that it depends on the packages only."""

_RECIPE = (
    "--mode=root",
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    '--customize-hook=find "$1" -xdev -name __pycache__ -prune -exec rm -r {} +',
    '--customize-hook=ln -s /usr/bin/python3 "$1/usr/local/bin/python"',
)


_DOCKERFILE = "FROM scratch\nADD base.tar /\n"


def context() -> Path:
    """Return the folder that the base is built from; it is made once, in the cache outside the tree."""
    digest = hashlib.sha256(repr((SUITE, EPOCH, _RECIPE, _DOCKERFILE)).encode()).hexdigest()[:16]
    folder = cache() / f"image-base-{digest}"
    with hold_lock(folder):
        if not folder.exists():
            click.echo(f"making a base image of Debian {SUITE} ...", err=True)
            draft = folder.with_name(f".{folder.name}")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            (draft / "Dockerfile").write_text(_DOCKERFILE)
            run("env", f"SOURCE_DATE_EPOCH={EPOCH}", "mmdebstrap", *_RECIPE, SUITE, draft / "base.tar")
            draft.rename(folder)
    return folder
