import re
from pathlib import Path

import pytest
import yaml

from tests.core.document.documents import build_document, list_problems, list_warnings
from webhook.core.document import Purpose
from webhook.core.document.feature_gates import NOT_EVERYWHERE
from webhook.core.document.formats.names import OPEN_KUBERNETES_KEYS
from webhook.core.document.schema import build_merged_schema

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "policy.md").read_text(encoding="utf-8")
UNSUPPORTED = PAGE.partition("## What needs a cluster or Redis")[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def complete_document(example: str) -> str:
    """Return the example if it is a document, or a document with it as a stanza."""
    if example.startswith("apiVersion: podgate.io"):
        return example
    return build_document("".join(f"  {line}\n" for line in example.splitlines()))


OTHER_OBJECTS = re.compile(r"spec:|apiVersion: (?!podgate\.io)")


@pytest.mark.parametrize("example", [found for found in EXAMPLES if OTHER_OBJECTS.match(found) is None])
def test_examples_of_the_page_can_be_served_without_warnings(example: str) -> None:
    assert list_problems(complete_document(example), Purpose.SERVE) == []
    assert list_warnings(complete_document(example)) == []


@pytest.mark.parametrize("page", ["scheduling", "node-load"])
def test_examples_of_nodes_can_be_served_without_warnings(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    examples = [found for found in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if found.startswith("nodes:")]
    assert examples
    for example in examples:
        services = "" if "\nservices:" in example else "services: [{name: web, match: {namespaces: [shop]}}]\n"
        document = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{example}{services}"
        assert list_problems(document, Purpose.SERVE) == []
        assert list_warnings(document) == []


def test_gitops_example_ignores_the_fields_that_a_rewrite_may_change() -> None:
    [example] = [found for found in EXAMPLES if found.startswith("spec:")]
    [ignored] = yaml.safe_load(example)["spec"]["ignoreDifferences"]
    pointers = {pointer.removeprefix("/spec/") for pointer in ignored["jsonPointers"]}
    placement_fields = ("schedulerName", "nodeSelector", "affinity", "topologySpreadConstraints", "tolerations")
    class_fields = ("priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "overhead")
    podgates_keys = ("/metadata/labels/podgate.io~1service", "/metadata/annotations/podgate.io~1policy-hash")
    assert pointers == {*placement_fields, *class_fields, *podgates_keys}


def test_page_lists_all_unsupported_stanzas() -> None:
    missing = [
        stanza.path
        for stanza in NOT_EVERYWHERE
        if stanza.path[-1] not in UNSUPPORTED or (stanza.word or "") not in UNSUPPORTED
    ]
    assert missing == []


def test_page_lists_no_supported_stanza_as_unsupported() -> None:
    known = {step for stanza in NOT_EVERYWHERE for step in (*stanza.path, stanza.word)}
    cells = [line.split("|")[1] for line in UNSUPPORTED.splitlines() if line.startswith("| `")]
    named = {word for cell in cells for span in re.findall(r"`(.*?)`", cell) for word in re.findall(r"\w+", span)}
    assert named - known == set()


def test_page_lists_the_keys_of_kubernetes_that_a_policy_may_set() -> None:
    assert [key for key in OPEN_KUBERNETES_KEYS if f"`{key}`" not in PAGE] == []


@pytest.mark.parametrize("stanza", ["placement", "resources"])
def test_section_of_a_stanza_names_each_field(stanza: str) -> None:
    section = PAGE.partition(f"\n## {stanza.capitalize()}\n")[2].partition("\n## ")[0]
    named = {word for span in re.findall(r"`(.*?)`", section) for word in re.findall(r"\w+", span)}
    fields = build_merged_schema()["properties"]["services"]["items"]["properties"][stanza]["properties"]
    missing = set(fields) - named
    if stanza == "resources":
        missing |= {name for part in fields.values() for name in part.get("properties", ())} - named
    assert missing == set()
