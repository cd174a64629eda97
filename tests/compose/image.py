"""What the image holds, made here: the Dockerfile's build stage, its commands run on folders of ours."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.compose import shipped


def build(folder: Path) -> Path:
    """Do what the build stage does; return the folder that holds its file system."""
    stage = shipped.stages()[0]
    [workdir] = [instruction.rest for instruction in stage if instruction.word == "WORKDIR"]
    source = folder / workdir.lstrip("/")
    source.mkdir(parents=True)
    for instruction in stage:
        match instruction.word:
            case "COPY":
                _copy(*instruction.listed, source)
            case "RUN":
                _run(re.sub(r"(?<![\w./])/(?=opt/)", f"{folder}/", instruction.rest), source)
            case "FROM" | "WORKDIR":
                pass
            case _:
                raise AssertionError(f"{instruction}: teach the tests what it does")
    return folder


def _copy(*words: str | Path) -> None:
    *names, target, source = (str(word) for word in words)
    for name in names:
        for path in sorted([shipped.ROOT / name, *(shipped.ROOT / name).glob("**/*")]):
            relative = path.relative_to(shipped.ROOT)
            if path.is_file() and shipped.reaches_the_build(relative.as_posix()):
                inside = path.relative_to(shipped.ROOT / name) if (shipped.ROOT / name).is_dir() else Path(name)
                destination = Path(source) / target / inside
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, destination)


def _run(command: str, source: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PODGATE_", "PYTHON"))}
    own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"  # whose `python` is the image's
    done = subprocess.run(["sh", "-c", command], cwd=source, env=own, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
