"""SECURITY.md: each threat has an answer and existing tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THREATS = [
    "Flooding",
    "Costly input",
    "Misconfiguration",
    "Deleted configuration",
    "Forged policy",
    "Policy that sends files of the extender's Pod",
    "Stolen credentials",
    "Sniffing",
    "Man in the middle",
    "Spoofed caller",
    "Mutation abused for privilege",
    "Exempt namespaces",
    "initContainers and ephemeralContainers missed",
    "Bad string match",
    "Old and new API versions",
    "pods/resize",
    "Overload caused on purpose",
    "Gate of a waiting Pod removed",
    "Gates with Podgate's prefix in a new Pod",
    "Podgate's rights to Pods",
    "Podgate's rights to controllers",
    "pods/ephemeralcontainers",
    "pods/binding",
    "pods/status",
    "spec.nodeName of a tenant",
    "managedFields of a tenant",
    "Placement changed later",
    "Priority, preemptionPolicy and overhead",
    "Resources of the whole Pod",
    "Resource claims",
    "DaemonSets of a tenant",
    "Exempt users",
    "Forged owners",
    "Labels of Namespaces that quotas count by",
    "Labels that a match asks for",
    "hostNetwork, hostPort, activeDeadlineSeconds",
    "Mirror Pod annotation spoofing",
    "UPDATE that removes our labels",
    "UPDATE of a Pod that is being deleted",
    "Service label in an exempt Pod",
    "Policy hash copied from another Pod",
    "UPDATE that changes labels or annotations of the policy, or adds tolerations",
    "UPDATE that changes what a rule in CEL has judged",
    "Pod that no rule in CEL can judge",
    "Pod padded above the size limits",
    "Parsing before authentication",
    "API paths made of a tenant's input",
    "A right to list Secrets",
    "Information disclosed by `/queue`",
    "The second kube-scheduler",
    "Calls of the scheduler extender",
    "Node of a claim written by a tenant",
    "Information disclosed by answers",
    "Certificates of another purpose",
    "Weak keys",
    "Request smuggling",
    "Escape sequences and forged lines on a terminal",
    "Secrets in errors",
    "Another site, user or process uses the console",
    "A viewer of a server's console changes something, or sees too much",
    "Tokens guessed at a server's console",
    "Markup of a tenant in the console",
    "Many browsers at the console",
    "Changed releases and dependencies",
]
ROW = re.compile(r"^\| (?P<threat>[^|]+) \| (?P<answer>[^|]+) \| (?P<tests>[^|]*) \|$", re.MULTILINE)


def test_every_threat_has_an_answer_and_existing_tests() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [row for row in ROW.finditer(text) if row["threat"] != "threat"]
    assert [row["threat"] for row in rows] == THREATS
    for row in rows:
        names = re.findall(r"`([^`]+)`", row["tests"])
        assert names or row["answer"].startswith("Out of scope: "), row["threat"]
        for name in names:
            path, _, function = name.partition("::")
            source = (ROOT / path).read_text()
            assert re.search(rf"^(async )?def {re.escape(function)}\(", source, re.MULTILINE), name


ASSET = re.compile(r"^\| (?P<asset>[^|]+) \| [^|]+ \| [^|]+ \| (?P<threats>[^|]+) \|$", re.MULTILINE)


def test_every_asset_has_threats_of_the_table() -> None:
    section = (ROOT / "SECURITY.md").read_text().partition("## Assets\n")[2].partition("\n## ")[0]
    rows = [row for row in ASSET.finditer(section) if row["asset"] != "asset"]
    assert len(rows) >= 10
    assert {threat for row in rows for threat in row["threats"].split("; ")} - set(THREATS) == set()


def test_every_linked_page_exists() -> None:
    pages = re.findall(r"\]\((docs/[a-z-]+\.md)\)", (ROOT / "SECURITY.md").read_text())
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []
