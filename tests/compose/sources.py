"""The shipped Dockerfile, .dockerignore and docker-compose.yml, read: services, instructions, what a build is given."""

import fnmatch
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"


def composition() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


@dataclass(frozen=True)
class Service:
    """One service of docker-compose.yml."""

    name: str
    given: dict[str, Any]

    @property
    def image(self) -> str:
        return str(self.given["image"])

    @property
    def is_ours(self) -> bool:
        return self.image == own_image()

    @property
    def command(self) -> list[str]:
        """What its container runs: `entrypoint`, or that of our image, and `command`; a `$$` is a `$`."""
        before = self.given.get("entrypoint", last("ENTRYPOINT").listed if self.is_ours else [])
        return [str(word).replace("$$", "$") for word in (*before, *self.given["command"])]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.given.get("environment", {}).items()}

    @property
    def podgate_commands(self) -> list[list[str]]:
        """The arguments of each `podgate` that it runs, those in a shell script included."""
        first, *others = self.command
        if first == "podgate":
            return [others]
        lines = self.command[-1].replace("\\\n", "").splitlines()
        return [shlex.split(line)[1:] for line in lines if line.split()[:1] == ["podgate"]]

    @property
    def listens(self) -> dict[str, int]:
        """The flags that say where it listens, and the ports; each on every address of its container."""
        found = (re.fullmatch(r"(--(?:plain-)?listen)=0\.0\.0\.0:(\d+)", word) for word in self.command)
        return {told[1]: int(told[2]) for told in found if told}

    @property
    def mounts(self) -> dict[str, str]:
        """Folders of the container, and the volume or the folder of the project that is mounted there."""
        return {volume.split(":")[1]: volume.split(":")[0] for volume in self.given.get("volumes", [])}

    @property
    def health_check(self) -> list[str]:
        kind, *words = self.given["healthcheck"]["test"]
        assert kind == "CMD", "a check without a shell"
        return list(words)

    @property
    def needs(self) -> dict[str, str]:
        """Services that come before it, and what is waited for."""
        return {name: told["condition"] for name, told in self.given.get("depends_on", {}).items()}


def services() -> dict[str, Service]:
    return {name: Service(name, given) for name, given in composition()["services"].items()}


def own_image() -> str:
    """Return the name of the image that is built here."""
    [name] = [str(given["image"]) for given in composition()["services"].values() if "build" in given]
    return name


@dataclass(frozen=True)
class Instruction:
    """One instruction of the Dockerfile: `RUN`, and what follows."""

    word: str
    rest: str

    @property
    def listed(self) -> list[str]:
        """What follows as words: a JSON list, or what is divided by spaces."""
        words: list[str] = json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)
        return words


def stages() -> list[list[Instruction]]:
    """Return the instructions of the Dockerfile, a list for each FROM."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    found = [Instruction(*line.split(maxsplit=1)) for line in whole if line.strip()]
    starts = [index for index, instruction in enumerate(found) if instruction.word == "FROM"]
    return [found[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def last(word: str) -> Instruction:
    """Return the image's own instruction of that kind."""
    [found] = [instruction for instruction in stages()[-1] if instruction.word == word]
    return found


def environment() -> dict[str, str]:
    """Return what the image sets: variables, with `$PATH` for the one that was there."""
    return dict(word.split("=", 1) for word in last("ENV").listed)


def reaches_the_build(path: str) -> bool:
    """Whether .dockerignore lets a path of the project into the build: the last line that says something holds."""
    parts = path.split("/")
    above = {"/".join(parts[: length + 1]) for length in range(len(parts))}
    let_in = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        tried = set(parts) if "**/" in line else above
        if line and not line.startswith("#") and any(fnmatch.fnmatchcase(one, pattern) for one in tried):
            let_in = line.startswith("!")
    return let_in
