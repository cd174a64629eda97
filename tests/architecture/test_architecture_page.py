"""The diagrams of docs/architecture.md, compared with the code."""

import re
import tomllib
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from tests.core.reviewing import policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.ports import PodQueue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
PARTS, PATH_OF_A_POD, *PACKAGES = re.findall(r"^```\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_packages_are_the_layers_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {contract["containers"][0]: contract["layers"] for contract in contracts if contract["type"] == "layers"}
    diagrams = {}
    for diagram in PACKAGES:
        name, *lines = diagram.splitlines()
        diagrams[name] = [line.strip() for line in lines]
    assert diagrams == layers


def test_the_path_of_a_pod_has_the_stages_of_the_interceptor() -> None:
    clock = VirtualClock(0)
    policy = FixedPolicy(policy_of("- {name: web, match: {namespaces: [shop]}}"), clock)
    queue = create_autospec(PodQueue, instance=True)
    interceptor = Interceptor(policy, MemoryStore(clock), FixedNamespaces({}), Observers(), queue=queue)
    for half in Half:
        line = next(line for line in PATH_OF_A_POD.splitlines() if line.strip().startswith(f"/{half.value} "))
        stages = max(interceptor._pod_stages[half].names_of.values(), key=len)
        assert line.split()[1:] == list(stages)


def test_the_table_explains_every_stage() -> None:
    explained = set(re.findall(r"^\| `(\w+)`", PAGE, flags=re.MULTILINE))
    drawn = {
        name
        for half in Half
        for line in PATH_OF_A_POD.splitlines()
        if line.strip().startswith(f"/{half.value} ")
        for name in line.split()[1:]
    }
    assert explained == drawn


@pytest.mark.parametrize("diagram", PACKAGES, ids=lambda diagram: diagram.partition("\n")[0])
def test_the_prose_names_every_package_of_the_layers(diagram: str) -> None:
    prose = PAGE[PAGE.index("## The layers") :]
    container, *packages = re.findall(r"[\w.]+", diagram)
    folder = container.replace(".", "/")
    missing = [name for name in packages if not re.search(rf"`{folder}/{name}(\.py)?`", prose)]
    assert missing == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\b(?:webhook|certs)/[\w/.]+\b/?", PAGE))))
def test_every_path_on_the_page_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_parts_have_the_endpoints_of_the_code() -> None:
    served = {
        endpoint
        for module in (ROOT / "webhook/server").rglob("*.py")
        for endpoint in re.findall(r'"(/[\w/-]+)"', module.read_text())
    }
    drawn = set(re.findall(r"(?<![\w/])/[a-z][\w/]+", PARTS))
    assert drawn
    assert drawn <= served
    assert served - drawn == {"/validate-policy", "/api/v1/policies/", "/api/v1/explain"}
