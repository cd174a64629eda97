"""buildah with a storage of its own: images, and containers that share the network of the machine."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tests.compose import sources
from tests.image import base
from tests.image.programs import run

_CERTIFICATES = "/etc/ssl/certs"
"""The machine's own, because it may reach the package index through a proxy that it trusts."""


@dataclass(frozen=True)
class Image:
    """A built image: digest of its configuration, and the size in bytes of each layer by digest."""

    digest: str
    layers: dict[str, int]


class Engine:
    """Storage of images and containers in a folder. Use it as a context manager: the exit unmounts them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))

    def __enter__(self) -> Self:
        self.build(base.context(), self.base_name, epoch=base.EPOCH)
        return self

    def __exit__(self, *_error: object) -> None:
        self("rm", "--all")
        self("rmi", "--all", "--force")
        subprocess.run(["umount", self._folder / "storage" / "overlay"], check=False, capture_output=True)

    def __call__(self, *arguments: str | Path) -> str:
        return run("buildah", *self._storage, *arguments).strip()

    @property
    def base_name(self) -> str:
        """The name in the Dockerfile, which the base of this machine gets."""
        [line] = [line for line in sources.DOCKERFILE.read_text().splitlines() if line.startswith("ARG BASE=")]
        return line.removeprefix("ARG BASE=")

    def build(self, context: Path, name: str, *, epoch: int) -> Image:
        """Build the Dockerfile in a folder; fail rather than fetch an image."""
        arguments = [f"--build-arg=SOURCE_DATE_EPOCH={epoch}"]
        if index := os.environ.get("PIP_INDEX_URL"):
            arguments.append(f"--build-arg=PIP_INDEX_URL={index}")
        if Path(_CERTIFICATES).is_dir():
            arguments.append(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro")
        self(
            *("build", "--isolation=chroot", "--pull=never", "--no-cache", f"--timestamp={epoch}"),
            *(*arguments, "--tag", name, context),
        )
        return self.image(name)

    def image(self, name: str) -> Image:
        manifest = json.loads(json.loads(self("inspect", "--type=image", name))["Manifest"])
        return Image(manifest["config"]["digest"], {layer["digest"]: layer["size"] for layer in manifest["layers"]})

    def container(self, name: str) -> "Container":
        """Return a new container of an image."""
        return Container(self, self("from", "--pull-never", name))


class Container:
    """A file system of an image, and commands in it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name

    @cached_property
    def root(self) -> Path:
        return Path(self._engine("mount", self._name))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The image's configuration: user, command, environment, labels."""
        settings: dict[str, Any] = json.loads(self._engine("inspect", self._name))["OCIv1"]["config"]
        return settings

    def run(self, *command: str) -> str:
        """Run a command as the image's user; return its output."""
        return self._engine(
            "run", "--isolation=chroot", "--user", str(self.settings["User"]), self._name, "--", *command
        )

    def read_only(self, command: Sequence[str], mounts: dict[str, Path]) -> list[str]:
        """Return a command of the machine that runs one of the container, on a read-only root file system.

        It is one process, which gets the signals; `mounts` are folders of the machine, read-only as well.
        """
        root = self.root
        steps = [f"mount --rbind {root} {root}"]
        for inside, outside in mounts.items():
            steps.append(f"mount --bind {outside} {root}{inside}")
            steps.append(f"mount -o remount,bind,ro {root}{inside}")
        steps += [f"mount -o remount,bind,ro {root}", 'exec "$@"']
        shell = ("unshare", "--mount", "sh", "-ec", "\n".join(steps), "sh")
        return [
            *shell,
            "chroot",
            f"--userspec={self.settings['User']}",
            str(root),
            "env",
            "-i",
            *self.settings["Env"],
            *command,
        ]
