"""The tests in docs/examples hold, and the documents quote them."""

import re
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cli.documented_commands import ROOT


def test_all_cases_of_the_examples_hold() -> None:
    done = podgate("test", ROOT / "docs" / "examples")
    assert done.code == 0, done.out
    assert " ok\n" in done.err


SHIPPED = """
apiVersion: podgate.io/v1alpha1
kind: PolicyTest
policy: policy.yaml
namespace: payments
cases:
- name: the shipped policy only warns
  objects: [PAYMENT_API]
  namespaceLabels: {payments: {}}
  expect: {decision: Admit, service: payment-api, warnings: [WouldRewrite], absent: [spec.nodeSelector]}
"""


def test_the_shipped_policy_changes_nothing(tmp_path: Path) -> None:
    shipped = yaml.safe_load((ROOT / "manifests" / "20-policy.yaml").read_text())
    (tmp_path / "policy.yaml").write_text(shipped["data"]["policy.yaml"])
    pod = ROOT / "docs" / "examples" / "tests" / "payment-api.yaml"
    (tmp_path / "case.yaml").write_text(SHIPPED.replace("PAYMENT_API", str(pod)))
    done = podgate("test", tmp_path)
    assert done.code == 0, done.out


@pytest.mark.parametrize(
    ("page", "start", "indent"),
    [
        ("test.md", "apiVersion: podgate", ""),
        ("migration.md", "- name: ", ""),
        ("from-kueue.md", "apiVersion: podgate", ""),
        ("from-volcano.md", "apiVersion: podgate", ""),
        ("from-capsule.md", "apiVersion: podgate", ""),
        ("policy.md", "placement:", "  "),
        ("policy.md", "resources:", "  "),
        ("rules.md", "rules:", "  "),
        ("shares.md", "placement:", "  "),
        ("shares-migration.md", "- name: ", ""),
    ],
)
def test_snippets_of_a_page_are_parts_of_the_examples(page: str, start: str, indent: str) -> None:
    examples = [path.read_text() for path in (ROOT / "docs" / "examples").rglob("*.yaml")]
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(rf"^```yaml\n({start}.*?)^```$", text, re.MULTILINE | re.DOTALL)
    snippets = [textwrap.indent(snippet, indent) for snippet in found]
    assert snippets
    assert [snippet for snippet in snippets if not any(snippet in example for example in examples)] == []
