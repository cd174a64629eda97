"""The shipped Dockerfile, .dockerignore and docker-compose.yml, parsed: services, instructions, build context."""

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
        return self.image == find_own_image()

    @property
    def command(self) -> list[str]:
        """The command of its container: `entrypoint`, or that of our image, and `command`; `$$` is `$`."""
        before = self.given.get("entrypoint", find_last("ENTRYPOINT").listed if self.is_ours else [])
        return [str(word).replace("$$", "$") for word in (*before, *self.given.get("command", []))]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.given.get("environment", {}).items()}

    @property
    def podgate_commands(self) -> list[list[str]]:
        """The arguments of each `podgate` command, also of those in a shell script."""
        first, *others = self.command
        if first == "podgate":
            return [others]
        lines = self.command[-1].replace("\\\n", "").splitlines()
        return [shlex.split(line)[1:] for line in lines if line.split()[:1] == ["podgate"]]

    @property
    def listens(self) -> dict[str, int]:
        """The flags of listening addresses, and their ports, on all addresses of the container."""
        matches = (re.fullmatch(r"(--(?:plain-)?listen)=0\.0\.0\.0:(\d+)", word) for word in self.command)
        return {match[1]: int(match[2]) for match in matches if match}

    @property
    def mounts(self) -> dict[str, str]:
        """Folders of the container, and the volume or folder of the project that is mounted on each."""
        return {volume.split(":")[1]: volume.split(":")[0] for volume in self.given.get("volumes", [])}

    @property
    def health_check(self) -> list[str]:
        kind, *words = self.given["healthcheck"]["test"]
        assert kind == "CMD", "a check without a shell"
        return list(words)

    @property
    def needs(self) -> dict[str, str]:
        """The services that it depends on, and the condition of each."""
        return {name: dependency["condition"] for name, dependency in self.given.get("depends_on", {}).items()}


def services() -> dict[str, Service]:
    return {name: Service(name, given) for name, given in composition()["services"].items()}


def find_own_image() -> str:
    """Return the name of the image that docker-compose.yml builds."""
    [name] = [str(given["image"]) for given in composition()["services"].values() if "build" in given]
    return name


@dataclass(frozen=True)
class Instruction:
    """One instruction of the Dockerfile: a word such as `RUN`, and its arguments."""

    word: str
    rest: str

    @property
    def listed(self) -> list[str]:
        """The arguments as words: from a JSON list, or split at spaces."""
        words: list[str] = json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)
        return words


def stages() -> list[list[Instruction]]:
    """Return the instructions of the Dockerfile, a list for each FROM."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined_lines = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    instructions = [Instruction(*line.split(maxsplit=1)) for line in joined_lines if line.strip()]
    starts = [index for index, instruction in enumerate(instructions) if instruction.word == "FROM"]
    return [instructions[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def find_last(word: str) -> Instruction:
    """Return the only instruction of that kind in the last stage."""
    [instruction] = [instruction for instruction in stages()[-1] if instruction.word == word]
    return instruction


def environment() -> dict[str, str]:
    """Return the environment variables of the image; `$PATH` stands for the previous one."""
    return dict(word.split("=", 1) for word in find_last("ENV").listed)


def is_in_build_context(path: str) -> bool:
    """Whether .dockerignore includes a path in the build context: the last matching line applies."""
    parts = path.split("/")
    prefixes = {"/".join(parts[: length + 1]) for length in range(len(parts))}
    is_included = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        candidates = set(parts) if "**/" in line else prefixes
        if (
            line
            and not line.startswith("#")
            and any(fnmatch.fnmatchcase(candidate, pattern) for candidate in candidates)
        ):
            is_included = line.startswith("!")
    return is_included
