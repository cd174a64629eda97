"""Dashboards hold only fields that Grafana has: read with the types that it publishes, since it does not run here."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.monitoring.dashboards import FILES, dashboards, panels

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    """Register the panels and queries that Grafana is shipped with."""
    register_default_plugins()


def find_lost(document: dict[str, Any]) -> list[str]:
    """Return the fields of a dashboard that are not there any more, or others, once it has been read."""
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    return list(_differences(document, read, ""))


def _differences(written: Any, read: Any, path: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            yield from _differences(value, read.get(name), f"{path}.{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif written != read:
        yield path


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_field_is_known(name: str) -> None:
    assert find_lost(dashboards()[name]) == []


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_panel_is_of_a_known_type(name: str) -> None:
    kinds = {panel["type"] for panel in panels(dashboards()[name])}
    assert kinds
    assert kinds <= Runtime().panelcfg_variants.keys()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda panel: panel["gridPos"].update(hh=3), "gridPos.hh"),
        (lambda panel: panel["options"]["legend"].update(displayMod="list"), "options.legend.displayMod"),
        (lambda panel: panel["fieldConfig"]["defaults"]["custom"].update(fill=1), "fieldConfig.defaults.custom.fill"),
        (lambda panel: panel["targets"][0].update(exprr="up"), "targets[0].exprr"),
    ],
    ids=["place", "option", "field", "query"],
)
def test_unknown_field_is_found(change: Change, field: str) -> None:
    dashboard = deepcopy(dashboards()["service"])
    number, panel = next(item for item in enumerate(dashboard["panels"]) if item[1]["type"] == "timeseries")
    change(panel)
    assert find_lost(dashboard) == [f".panels[{number}].{field}"]
