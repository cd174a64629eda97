import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from webhook.core.document import schema

HERE = Path(__file__).parent
SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def objects(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [found for item in part for found in objects(item)]
    if not isinstance(part, dict):
        return []
    own = [part] if isinstance(part.get("properties"), dict) and part.get("type") == "object" else []
    return own + [found for value in part.values() for found in objects(value)]


def test_it_is_a_json_schema_that_travels_as_json() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_no_object_takes_unknown_fields() -> None:
    found = objects(SCHEMA)
    assert len(found) > 30
    assert all(each["additionalProperties"] is False for each in found)


def test_every_definition_is_there_and_used() -> None:
    text = json.dumps(SCHEMA)
    for name in SCHEMA["$defs"]:
        assert f'"#/$defs/{name}"' in text
    assert text.count('"$ref"') == sum(text.count(f'"$ref": "#/$defs/{name}"') for name in SCHEMA["$defs"])


@pytest.mark.parametrize(
    "document",
    [HERE / "complete_example.yaml", *sorted((HERE / "good").glob("*.yaml"))],
    ids=lambda path: path.stem,
)
def test_an_editor_finds_nothing_in_a_good_document(document: Path) -> None:
    # PyYAML reads the unquoted date as one; an editor, and we, read text.
    text = (
        document.read_text().replace("2024-01-01", '"2024-01-01"').replace("0x1f", '"0x1f"').replace("1_000", '"1_000"')
    )
    assert list(VALIDATOR.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize("name", ["misspelled_key", "word_in_lower_case", "nameless_service", "window_without_limits"])
def test_an_editor_sees_mistakes_of_shape(name: str) -> None:
    document = yaml.safe_load((HERE / "bad" / f"{name}.yaml").read_text())
    assert list(VALIDATOR.iter_errors(document)) != []
