"""Pages about migration: the manifests before it pass under the policy after it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cli.documented_commands import ROOT

PLACEMENT = "what is promised is quota, not placement"


def read_page(page: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the page's policy, and all objects of its manifests."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    [policy] = [block for block in blocks if block.startswith("apiVersion: podgate")]
    others = [block for block in blocks if block is not policy]
    return policy, [document for block in others for document in yaml.safe_load_all(block)]


@pytest.mark.parametrize(
    ("page", "reviewed", "warnings"),
    [
        ("from-kueue.md", [("Pod", "team-a"), ("Job", "team-a")], [PLACEMENT, PLACEMENT]),
        ("from-volcano.md", [("Job", "training"), ("Pod", "training")], []),
        ("from-capsule.md", [("Pod", "oil")], []),
    ],
)
def test_what_was_written_before_is_admitted_after(
    tmp_path: Path, page: str, reviewed: list[tuple[str, str]], warnings: list[str]
) -> None:
    policy, documents = read_page(page)
    to = tmp_path / "policy.yaml"
    to.write_text(policy)

    linted = podgate("policy", "lint", to)
    assert linted.code == 0, linted.err
    found = [line for line in linted.err.splitlines() if line.startswith("warning: ")]
    assert len(found) == len(warnings)
    assert all(warning in line for warning, line in zip(warnings, found, strict=True))

    done = podgate("review", "-", "--policy", to, "-o", "json", stdin=json.dumps({"kind": "List", "items": documents}))
    assert done.code == 0, done.out
    assert [(line["kind"], line["service"]) for line in done.lines] == reviewed
    assert {line["decision"] for line in done.lines} == {"Admit"}


@pytest.mark.parametrize("name", ["kueue-queues", "volcano-queues", "capsule-tenant"])
def test_the_policy_of_a_page_is_whole(name: str) -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("from-*.md"))
    assert (ROOT / "docs" / "examples" / "migration" / f"{name}-policy.yaml").read_text() in pages
