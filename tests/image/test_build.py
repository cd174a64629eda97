"""The image that the Dockerfile builds: reproducible, without tools, of a bounded size."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.compose import sources
from tests.image.conftest import EPOCH
from tests.image.engine import Container, Engine, Image

_ADDED_MB_MAX = 225
"""Of Podgate, its dependencies and their bytecode, without the base; 52 MB is the library of CEL."""
_COMPILERS = {"cc", "gcc", "g++", "c++", "cpp", "clang", "tcc", "as", "ld", "make", "cargo", "rustc", "go", "javac"}
_INSTALLERS = {"pip", "pip3", "wheel", "easy_install", "ensurepip", "setuptools", "pkg_resources", "python-wheels"}


def paths(root: Path) -> list[Path]:
    """Return the files of an image, links included."""
    found = (path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return [path for path in found if path.relative_to(root).parts[0] not in {"proc", "sys", "dev"}]


def test_two_builds_are_identical(engine: Engine, image: Image, second_image: Image) -> None:
    names = ("of the base", "of Podgate")
    for name, first, second in zip(names, image.layers, second_image.layers, strict=True):
        print(f"layer {name}: {first} {'=' if first == second else '!='} {second}")  # noqa: T201  for a person
    print(f"configuration: {image.digest} {'=' if image == second_image else '!='} {second_image.digest}")  # noqa: T201
    assert image == second_image
    assert next(iter(image.layers)) in engine.image(engine.base_name).layers


def test_wheel_is_the_one_of_a_release(container: Container, checkout: Path, tmp_path: Path) -> None:
    """As `make dist` builds it."""
    source = shutil.copytree(checkout, tmp_path / "source")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", tmp_path)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "."], cwd=source, env=environment, check=True)
    [wheel] = tmp_path.glob("*.whl")
    line = f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}"
    assert line in (container.root / "opt/podgate/wheels.sha256").read_text().splitlines()


def test_size_is_bounded(image: Image) -> None:
    base, added = (size / 1_000_000 for size in image.layers.values())
    print(f"base {base:.0f} MB, Podgate {added:.0f} MB, uncompressed")  # noqa: T201  for a person
    assert added < _ADDED_MB_MAX


def test_no_compiler_and_no_installer_is_left(container: Container) -> None:
    names = {path.name for path in paths(container.root) if os.access(path, os.X_OK)}
    assert "python3" in names, "the search finds programs"
    assert names & _COMPILERS == set()
    folders = {path.name for path in container.root.rglob("*") if path.is_dir()}
    assert (names | folders) & _INSTALLERS == set()
    assert [path for path in paths(container.root) if path.suffix == ".whl"] == []


def test_no_program_runs_as_root_for_others(container: Container) -> None:
    mask = stat.S_ISUID | stat.S_ISGID
    assert [path for path in paths(container.root) if not path.is_symlink() and path.stat().st_mode & mask] == []


def test_image_user_can_write_only_temporary_files_and_keys(container: Container) -> None:
    user, group = map(int, container.settings["User"].split(":"))
    writable = set()
    for folder in (path for path in container.root.rglob("*") if path.is_dir() and not path.is_symlink()):
        status, name = folder.stat(), f"/{folder.relative_to(container.root)}"
        owned = status.st_uid == user or status.st_gid == group
        if (owned or status.st_mode & stat.S_IWOTH) and not name.startswith(("/proc", "/sys", "/dev")):
            writable.add(name)
    assert writable == {"/pki", "/tmp", "/var/tmp", "/run/lock"}  # noqa: S108  of the image


def test_each_module_has_bytecode_that_needs_no_source_time(container: Container) -> None:
    """Else each start on a read-only file system compiles all that it imports."""
    [folder] = container.root.glob("opt/podgate/lib/python*/site-packages")
    for name in ("webhook", "certs", "aiohttp", "kubernetes_asyncio"):
        for source in (folder / name).rglob("*.py"):
            [compiled] = source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
            assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", f"{compiled}: is checked against its source"


def test_settings_are_those_of_the_dockerfile(container: Container) -> None:
    about: dict[str, Any] = tomllib.loads((sources.ROOT / "pyproject.toml").read_text())["project"]
    settings = container.settings
    assert settings["User"] == sources.find_last("USER").rest
    assert settings["Entrypoint"] == sources.find_last("ENTRYPOINT").listed
    assert settings["Labels"]["org.opencontainers.image.version"] == about["version"]
    assert sorted(settings["ExposedPorts"]) == sorted(f"{port}/tcp" for port in sources.find_last("EXPOSE").listed)
