"""The other files of manifests/monitoring: dashboards, monitors, and what kustomize makes of them."""

import json
import os
import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.cluster import manifests
from tests.cluster.binaries import binaries
from tests.cluster.go_programs import NO_COLLECTIONS
from tests.monitoring.dashboards import DATA_SOURCE, FILES, dashboards, panels, queries
from tests.monitoring.rule_files import FOLDER, metrics, rules
from webhook.adapters.metrics.families import FAMILIES

UIDS = {name: f"podgate-{name}" for name in ("fleet", "scheduling", "service", "slo")}
LABEL = "app.kubernetes.io/name"


def monitors() -> dict[str, dict[str, Any]]:
    """Return the monitors by name."""
    found = yaml.safe_load_all((FOLDER / "monitors.yaml").read_text())
    return {monitor["metadata"]["name"]: monitor["spec"] for monitor in found}


def test_dashboards_keep_their_uids_so_that_links_to_them_last() -> None:
    assert {name: dashboard["uid"] for name, dashboard in dashboards().items()} == UIDS


@pytest.mark.parametrize("name", UIDS)
def test_dashboard_asks_for_its_data_source_and_explains_each_panel(name: str) -> None:
    dashboard = dashboards()[name]
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len({panel["id"] for panel in dashboard["panels"]}) == len(places)
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(part["datasource"] == DATA_SOURCE for part in (panel, *panel["targets"]))
        used = {word for target in panel["targets"] for word in re.findall(r"\$(\w+)", target["expr"])}
        assert used <= {*variables, "__rate_interval"}


@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_query_uses_known_metrics_and_the_interval_of_its_dashboard(place: str, query: str) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics([query])}
    own = {name for name in names if name.startswith("podgate_")}
    assert own <= {family.name for family in FAMILIES}, place
    assert {name for name in names if ":" in name} <= recorded, place
    assert set(re.findall(r"\[[$\d].*?\]", query)) <= {"[$__rate_interval]"}, place


def test_kustomize_makes_config_maps_that_grafana_finds() -> None:
    command, environment = [binaries().kubectl, "kustomize", FOLDER], {**os.environ, **NO_COLLECTIONS}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    objects = list(yaml.safe_load_all(done.stdout))
    assert {document["metadata"]["namespace"] for document in objects} == {"podgate-system"}
    config_maps = [document for document in objects if document["kind"] == "ConfigMap"]
    assert all(config_map["metadata"]["labels"]["grafana_dashboard"] == "1" for config_map in config_maps)
    content = {name: text for config_map in config_maps for name, text in config_map["data"].items()}
    assert content == {path.name: path.read_text() for path in FILES}
    assert {json.loads(text)["uid"] for text in content.values()} == set(UIDS.values())
    others = sorted(
        (document["kind"], document["metadata"]["name"]) for document in objects if document["kind"] != "ConfigMap"
    )
    pods = [("PodMonitor", name) for name in ("podgate-controller", "podgate-extender")]
    assert others == [*pods, ("PrometheusRule", "podgate"), ("ServiceMonitor", "podgate")]


def test_servers_are_scraped_by_their_service() -> None:
    monitor = monitors()["podgate"]
    assert monitor["jobLabel"] == LABEL
    services = manifests.objects("base/40-service.yaml")
    selected = monitor["selector"]["matchLabels"].items()
    [endpoint] = monitor["endpoints"]
    ports = [
        port["name"]
        for service in services
        if selected <= service["metadata"]["labels"].items()
        for port in service["spec"]["ports"]
    ]
    assert ports.count(endpoint["port"]) == 1, "each server is scraped once"


@pytest.mark.parametrize(
    ("name", "file"),
    [("podgate-controller", "redis/31-controller.yaml"), ("podgate-extender", "scheduler/33-extender.yaml")],
)
def test_controllers_and_extenders_are_scraped_by_their_pods(name: str, file: str) -> None:
    monitor = monitors()[name]
    assert monitor["jobLabel"] == LABEL
    [deployment] = [document for document in manifests.objects(file) if document["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    [container] = template["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
