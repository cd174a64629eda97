"""docs/overrides.md: its document is valid, and its commands parse."""

import re
import shlex
from pathlib import Path

from tests.cli.command_runner import podgate
from webhook.core.overrides.loading import ACTIONS, load

PAGE = (Path(__file__).parents[2] / "docs" / "overrides.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_example_uses_every_field_of_an_entry() -> None:
    [whole, variant, workload, pods] = (set(entry.encode_plain()) for entry in load(blocks("yaml")[0].encode()).entries)
    assert set(ACTIONS) < whole
    assert ("variant" in variant, "workload" in workload, "pods" in pods) == (True, True, True)


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    for number, line in enumerate("".join(blocks("sh")).splitlines()):
        _, *arguments = shlex.split(line.replace("2026-", "2099-"))
        if arguments[:2] not in (["quota", "show"], ["queue", "release"]):  # they ask a server, or the cluster
            done = podgate(*arguments, "--overrides", tmp_path / f"{number}.yaml")
            assert done.code == 0, (line, done.err)
