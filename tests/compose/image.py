"""The image's content, built here: the Dockerfile's build stage, run on local folders."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.binaries import cache
from tests.cluster.toolchain import locked
from tests.compose import sources
from tests.compose.sources import Instruction


def build(folder: Path) -> Path:
    """Do what the build stage does; return the folder that holds its file system."""
    stage = sources.stages()[0]
    dependencies = 1 + next(index for index, one in enumerate(stage) if one.word == "RUN")
    _copy_layer(_layer(stage[:dependencies]), folder)
    _do(stage[dependencies:], folder, folder / _workdir(stage))
    return folder


def _layer(instructions: Sequence[Instruction]) -> Path:
    """Return what these make: kept from run to run, as Docker does, until they or the files that they copy change."""
    files = [path for one in instructions if one.word == "COPY" for path, _ in _copied(one.listed)]
    told = [sys.version, *map(repr, instructions), *(path.read_text() for path in files)]
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]
    layer, made = cache() / f"image-{digest}", cache() / f"image-{digest}.made"
    with locked(layer):
        if not made.exists():
            shutil.rmtree(layer, ignore_errors=True)
            _do(instructions, layer, layer / _workdir(instructions))
            made.touch()
    return layer


def _copy_layer(layer: Path, folder: Path) -> None:
    """Copy it to where its programs have another path: what they and the environment itself say of it is changed."""
    shutil.copytree(layer, folder, symlinks=True, dirs_exist_ok=True)
    for path in folder.glob("opt/*/bin/*"):
        if not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(str(layer).encode(), str(folder).encode()))


def _workdir(instructions: Sequence[Instruction]) -> str:
    [workdir] = [instruction.rest for instruction in instructions if instruction.word == "WORKDIR"]
    return workdir.lstrip("/")


def _do(instructions: Sequence[Instruction], folder: Path, source: Path) -> None:
    source.mkdir(parents=True, exist_ok=True)
    for instruction in instructions:
        match instruction.word:
            case "COPY":
                for path, name in _copied(instruction.listed):
                    (source / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, source / name)
            case "RUN":
                _run(re.sub(r"(?<![\w./])/(?=opt/)", f"{folder}/", instruction.rest), source)
            case "FROM" | "WORKDIR":
                pass
            case _:
                raise AssertionError(f"{instruction}: teach the tests what it does")


def _copied(words: Sequence[str]) -> list[tuple[Path, Path]]:
    """Return each file that a COPY brings, and what it is called in the working directory."""
    *names, target = words
    found = []
    for name in names:
        for path in sorted([sources.ROOT / name, *(sources.ROOT / name).glob("**/*")]):
            if path.is_file() and sources.reaches_the_build(path.relative_to(sources.ROOT).as_posix()):
                inside = path.relative_to(sources.ROOT / name) if (sources.ROOT / name).is_dir() else Path(name)
                found.append((path, target / inside))
    return found


def _run(command: str, source: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PODGATE_", "PYTHON"))}
    own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"  # whose `python` is the image's
    done = subprocess.run(["sh", "-c", command], cwd=source, env=own, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
