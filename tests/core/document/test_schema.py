import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from webhook.core.document import schema
from webhook.core.document.formats import find_fault
from webhook.core.document.schema import EDITOR_PATTERNS

HERE = Path(__file__).parent
SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)
_PARTS = [
    "1",
    "0",
    ".",
    "+",
    "-",
    "m",
    "s",
    "h",
    "ns",
    "Gi",
    "k",
    "e3",
    "cpu",
    "memory",
    "requests.",
    "limits.",
    "pods",
]
_PARTS += ["hugepages-", "2Mi", "nvidia.com", "/", "gpu", "ephemeral-storage", "A_b", "µs"]


def list_objects(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [found for item in part for found in list_objects(item)]
    if not isinstance(part, dict):
        return []
    own = [part] if isinstance(part.get("properties"), dict) and part.get("type") == "object" else []
    return own + [found for value in part.values() for found in list_objects(value)]


def test_schema_is_a_valid_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_no_object_accepts_unknown_fields() -> None:
    found = list_objects(SCHEMA)
    assert len(found) > 30
    assert all(schema_of_object["additionalProperties"] is False for schema_of_object in found)


def test_each_definition_exists_and_is_used() -> None:
    text = json.dumps(SCHEMA)
    for name in SCHEMA["$defs"]:
        assert f'"#/$defs/{name}"' in text
    assert text.count('"$ref"') == sum(text.count(f'"$ref": "#/$defs/{name}"') for name in SCHEMA["$defs"])


def is_described(part: dict[str, Any]) -> bool:
    """Return whether a field, its type or the type of its entries has a description."""
    of_type = SCHEMA["$defs"].get(part.get("$ref", "").removeprefix("#/$defs/"))
    parts = [of_type, part.get("items"), *part.get("anyOf", [])]
    return "description" in part or any(is_described(part) for part in parts if part is not None)


@pytest.mark.parametrize(
    "stanza",
    [
        *("Match", "PlacementEntry", "AllowedEntry", "LabelSource", "TopologyEntry", "ConflictRulesEntry"),
        *("ResourceRulesEntry", "ContainerRangeEntry", "PodRangeEntry"),
    ],
)
def test_each_field_of_matches_placements_and_resources_is_described(stanza: str) -> None:
    properties = SCHEMA["$defs"][stanza]["properties"]
    assert [field for field, part in properties.items() if not is_described(part)] == []


@pytest.mark.parametrize(
    "document",
    [HERE / "complete_example.yaml", *sorted((HERE / "good").glob("*.yaml"))],
    ids=lambda path: path.stem,
)
def test_good_document_matches_the_schema(document: Path) -> None:
    # PyYAML reads an unquoted date as a date; editors and Podgate read text.
    text = (
        document.read_text().replace("2024-01-01", '"2024-01-01"').replace("0x1f", '"0x1f"').replace("1_000", '"1_000"')
    )
    assert list(VALIDATOR.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize("name", ["misspelled_key", "word_in_lower_case", "nameless_service", "window_without_limits"])
def test_document_of_a_wrong_shape_does_not_match_the_schema(name: str) -> None:
    document = yaml.safe_load((HERE / "bad" / f"{name}.yaml").read_text())
    assert list(VALIDATOR.iter_errors(document)) != []


def document_of(stanza: str) -> Any:
    head = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- name: web\n  match: {namespaces: [shop]}\n"
    return yaml.safe_load(head + stanza)


@pytest.mark.parametrize(
    "stanza",
    [
        "  quota: {windows: [{window: 1d, hard: {pods: 1}}]}\n",
        "  quota: {windows: [{window: 1m, hard: {memory: 1GB}}]}\n",
        "  quota: {windows: [{window: 1m, hard: {memroy: 1Gi}}]}\n",
        "  quota: {standing: {hard: {nvidia.com/gpu: 1}}}\n",
        "  resources: {container: {max: {memory: 1GB}}}\n",
        "  resources: {container: {max: {requests.cpu: 1}}}\n",
        "  breaker: {quotaExceeded: {count: 1, within: 1 minute}}\n",
    ],
)
def test_an_editor_refuses_a_misspelt_amount_duration_or_resource(stanza: str) -> None:
    assert list(VALIDATOR.iter_errors(document_of(stanza))) != []


@given(st.sampled_from(sorted(EDITOR_PATTERNS)), st.data())
def test_every_value_of_a_format_has_its_pattern(name: str, data: st.DataObject) -> None:
    parts = st.lists(st.sampled_from(_PARTS), max_size=5).map("".join)
    text = data.draw(parts | st.from_regex(EDITOR_PATTERNS[name]) | st.text(max_size=8))
    if find_fault(text, name) is None:
        assert re.search(EDITOR_PATTERNS[name], text) is not None


def test_a_service_may_remove_a_key_of_a_default_by_null() -> None:
    assert list(VALIDATOR.iter_errors(document_of("  quota: {standing: {hard: {memory: null, pods: 1}}}\n"))) == []
    assert list(VALIDATOR.iter_errors(document_of("  placement: {nodeSelector: {disk-type: null}}\n"))) == []
