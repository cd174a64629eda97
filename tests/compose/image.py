"""The content of the image, built by running the build stage of the Dockerfile on local folders."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.binaries import cache
from tests.cluster.toolchain import hold_lock
from tests.compose import sources
from tests.compose.sources import Instruction


def build(folder: Path) -> Path:
    """Run the build stage; return the folder with its file system."""
    stage = sources.stages()[0]
    dependencies = 1 + next(index for index, instruction in enumerate(stage) if instruction.word == "RUN")
    _copy_layer(_layer(stage[:dependencies]), folder)
    settings = [instruction for instruction in stage[:dependencies] if instruction.word in {"ARG", "ENV"}]
    _execute([*settings, *stage[dependencies:]], folder, folder / _workdir(stage))
    return folder


def _layer(instructions: Sequence[Instruction]) -> Path:
    """Return the file system after these instructions, cached by instructions and copied files."""
    files = [
        path
        for instruction in instructions
        if instruction.word == "COPY"
        for path, _ in _list_copied(instruction.listed)
    ]
    inputs = [sys.version, *map(repr, instructions), *(path.read_text() for path in files)]
    digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    layer, marker = cache() / f"image-{digest}", cache() / f"image-{digest}.made"
    with hold_lock(layer):
        if not marker.exists():
            shutil.rmtree(layer, ignore_errors=True)
            _execute(instructions, layer, layer / _workdir(instructions))
            marker.touch()
    return layer


def _copy_layer(layer: Path, folder: Path) -> None:
    """Copy a layer, and replace its path in the scripts of its virtual environment."""
    shutil.copytree(layer, folder, symlinks=True, dirs_exist_ok=True)
    for path in folder.glob("opt/*/bin/*"):
        if not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(str(layer).encode(), str(folder).encode()))


def _workdir(instructions: Sequence[Instruction]) -> str:
    [workdir] = [instruction.rest for instruction in instructions if instruction.word == "WORKDIR"]
    return workdir.lstrip("/")


def _execute(instructions: Sequence[Instruction], folder: Path, source: Path) -> None:
    source.mkdir(parents=True, exist_ok=True)
    variables: dict[str, str] = {}
    for instruction in instructions:
        match instruction.word:
            case "ARG" | "ENV":
                variables |= dict(word.split("=", 1) for word in instruction.listed if "=" in word)
            case "COPY":
                for path, name in _list_copied(instruction.listed):
                    (source / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, source / name)
            case "RUN":
                _run(re.sub(r"(?<![\w./])/(?=opt/)", f"{folder}/", instruction.rest), source, variables)
            case "FROM" | "WORKDIR":
                pass
            case _:
                raise AssertionError(f"{instruction}: not implemented in the tests")


def _list_copied(words: Sequence[str]) -> list[tuple[Path, Path]]:
    """Return each file that a COPY copies, and its path in the working directory."""
    *names, target = words
    copied = []
    for name in names:
        for path in sorted([sources.ROOT / name, *(sources.ROOT / name).glob("**/*")]):
            if path.is_file() and sources.is_in_build_context(path.relative_to(sources.ROOT).as_posix()):
                relative = path.relative_to(sources.ROOT / name) if (sources.ROOT / name).is_dir() else Path(name)
                copied.append((path, target / relative))
    return copied


def _run(command: str, source: Path, variables: Mapping[str, str]) -> None:
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("PODGATE_", "PYTHON"))}
    outer["PATH"] = f"{Path(sys.executable).parent}:{outer['PATH']}"  # its `python` is that of the image
    done = subprocess.run(
        ["sh", "-c", command], cwd=source, env={**outer, **variables}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
