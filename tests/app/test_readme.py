"""The commands of the README."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.readme import README, ROOT, environment, run_script, shell_blocks
from tests.timeouts import HANG_SECONDS
from webhook.core.document import Purpose, load, render
from webhook.core.document.rendering import strip_sources


def test_each_section_with_commands_of_podgate_sets_the_path_that_it_needs() -> None:
    sections = re.split(r"^## ", README, flags=re.MULTILINE)[1:]
    blocks = [re.findall(r"```(?:sh)?\n(.*?)```", section, flags=re.DOTALL) for section in sections]
    first = [
        next(block for block in found if "podgate " in block)
        for found in blocks
        if any("podgate " in block for block in found)
    ]
    assert len(first) == 3
    for block in first:
        assert 'export PATH="$PWD/.venv/bin:$PATH"' in block.partition("podgate ")[0], block


def test_server_commands_and_the_call_of_the_readme_work(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    serve, call = shell_blocks("Run the server")
    free_ports = "podgate serve --listen 127.0.0.1:0 --plain-listen 127.0.0.1:0 "
    with run_script(serve.replace("podgate serve ", free_ports), tmp_path) as process:
        assert process.stderr is not None
        deadline = time.monotonic() + HANG_SECONDS
        line = ""
        while '"listening"' not in line:
            line = process.stderr.readline()
            assert line, "the server ended"
            assert time.monotonic() < deadline
        address = json.loads(line)["admission"][0]
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", call.replace("127.0.0.1:8443", address)],
            cwd=tmp_path,
            env=environment(),
            check=True,
            capture_output=True,
            text=True,
        )
    response = json.loads(done.stdout)["response"]
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    assert response["auditAnnotations"]["client-id"] == "cluster-1"


def test_commands_without_a_cluster_work_and_print_the_diff() -> None:
    (script,) = shell_blocks("Policies without a cluster")
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", script], cwd=ROOT, env=environment(), check=True, capture_output=True, text=True
    )
    (diff,) = re.findall(r"```diff\n(.*?)```", README, flags=re.DOTALL)
    assert diff in done.stdout


def test_the_two_commands_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"```sh\nmake {command}\n```" in README
        assert f"\n{command}: setup\n" in makefile


@pytest.mark.parametrize(("name", "purpose"), [("policy.yaml", Purpose.SERVE), ("errors.yaml", Purpose.REPLAY)])
def test_the_example_policies_are_good(name: str, purpose: Purpose) -> None:
    assert load((ROOT / "docs" / "examples" / name).read_bytes(), purpose).warnings == ()


def test_error_example_trips_waits_probes_and_closes() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", "podgate replay docs/examples/errors.jsonl --policy docs/examples/errors.yaml"],
        cwd=ROOT,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if '"waiting"' in line]
    assert [event["breaker"] for event in events] == ["OPEN", "HALF_OPEN", "CLOSED"]


def keys(document: Any) -> set[str]:
    if isinstance(document, list):
        return set().union(*map(keys, document))
    if not isinstance(document, dict):
        return set()
    free_keys = {
        "nodeSelector",
        "hard",
        "matchLabels",
        "tolerations",
    }  # their keys are the user's or those of Kubernetes
    return set(document) | set().union(*(keys(value) for name, value in document.items() if name not in free_keys))


def test_the_page_on_the_policy_names_every_field_that_is_in_force() -> None:
    page = (ROOT / "docs" / "policy.md").read_text()
    for name in ("policy.yaml", "errors.yaml"):
        rendered = render((ROOT / "docs" / "examples" / name).read_bytes())
        assert rendered is not None
        missing = {key for key in keys(strip_sources(rendered)) if not re.search(rf"\b{key}\b", page)}
        assert missing == set(), name
