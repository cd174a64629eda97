"""The shipped rules and dashboards, parsed."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "manifests" / "monitoring"
RULES = FOLDER / "rules.yaml"
METRIC = re.compile(r"\b(?:podgate|apiserver|process)_\w+|\bpodgate:\w+:\w+")


def rules() -> Iterator[dict[str, Any]]:
    """Yield every rule."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def alerts() -> list[dict[str, Any]]:
    """Return every alerting rule."""
    return [rule for rule in rules() if "alert" in rule]


def metrics(expressions: Iterable[str]) -> set[str]:
    """Return the names of the metrics in these expressions."""
    return {name for expression in expressions for name in METRIC.findall(expression)}
