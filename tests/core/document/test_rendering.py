from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.core.document.documents import HEAD
from webhook.core.document import render
from webhook.core.document.loading import load_effective
from webhook.core.document.rendering import SourcedValue, format_yaml_lines, list_sources, strip_sources
from webhook.core.policy.model import Policy

HERE = Path(__file__).parent
DOCUMENT = HEAD + (
    "defaults:\n"
    "  failureMode: Closed\n"
    "  placement: {nodeSelector: {disk: ssd}}\n"
    "services:\n"
    "- name: payment-api\n"
    "  match: {namespaces: [payments]}\n"
    "  placement:\n"
    '    nodeSelector: {spot: "no"}\n'
)


def render_service(service: str | None = None) -> SourcedValue:
    found = render(DOCUMENT.encode(), service)
    assert found is not None
    return found


def test_each_value_has_its_source() -> None:
    origins = {path: str(source) for path, source in list_sources(render_service("payment-api"))}
    assert origins["name"] == "line 7"
    assert origins["placement.nodeSelector.spot"] == "line 10"
    assert origins["placement.nodeSelector.disk"] == "defaults, line 5"
    assert origins["failureMode"] == "defaults, line 4"
    assert origins["slaClass"] == "built in"


def test_yaml_has_sources_as_comments_behind_the_values() -> None:
    lines = [" ".join(line.split()) for line in format_yaml_lines(render_service("payment-api"))]
    assert "failureMode: Closed # defaults, line 4" in lines
    assert 'spot: "no" # line 10' in lines


def test_fields_that_need_the_load_of_nodes_are_not_rendered_without_a_source() -> None:
    """The built-in values would be an error of the rendered document."""
    document = DOCUMENT + "  scheduling: {numa: Required}\n"
    sourced = render(document.encode())
    assert sourced is not None
    assert strip_sources(sourced)["services"][0]["scheduling"].keys().isdisjoint({"hot", "pressure", "whenUnknown"})
    text = "\n".join(format_yaml_lines(sourced))
    assert load_effective(text.encode(), None).policy == load_effective(document.encode(), None).policy


def test_unknown_service_is_rendered_as_none() -> None:
    assert render(DOCUMENT.encode(), "ledger") is None


@pytest.mark.parametrize(
    "document",
    [HERE / "complete_example.yaml", *sorted((HERE / "good").glob("*.yaml"))],
    ids=lambda path: path.stem,
)
def test_rendered_yaml_is_the_policy_in_force(document: Path) -> None:
    sourced = render(document.read_bytes())
    assert sourced is not None
    text = "\n".join(format_yaml_lines(sourced))
    parsed: Any = yaml.safe_load(text)
    assert parsed == strip_sources(sourced)
    reloaded = load_effective(text.encode(), None).policy
    assert render_policy(reloaded) == render_policy(load_effective(document.read_bytes(), None).policy)


def render_policy(policy: Policy) -> Any:
    return msgspec.to_builtins(policy, enc_hook=str)
