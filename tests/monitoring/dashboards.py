"""The shipped dashboards, parsed."""

import json
from collections.abc import Iterator
from typing import Any

from tests.monitoring.rule_files import FOLDER

FILES = sorted(FOLDER.glob("dashboards/*.json"))
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboards() -> dict[str, dict[str, Any]]:
    """Return every dashboard by the name of its file."""
    return {path.stem: json.loads(path.read_text()) for path in FILES}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels that show data."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(*names: str) -> Iterator[tuple[str, str]]:
    """Yield each query of these dashboards, by default of all, with the place of its panel."""
    for name, dashboard in dashboards().items():
        if names and name not in names:
            continue
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}: {target['refId']}", target["expr"]
