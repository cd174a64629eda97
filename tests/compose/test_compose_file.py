"""docker-compose.yml agrees with the command line, the manifests and the examples."""

import copy
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from tests.cluster.manifests import arguments, pod_spec
from tests.compose import sources
from tests.monitoring.dashboards import FILES
from webhook.cli import root
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.quantity import Duration

SCHEMA = Path(__file__).parent / "schema"
EXAMPLES = sources.ROOT / "docs" / "examples"
OURS = ("setup", "podgate", "replica")
SERVERS = ("podgate", "replica")


def schema_errors(document: Any) -> list[str]:
    schema = json.loads((SCHEMA / "compose-spec.json").read_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def parse(arguments: list[str]) -> click.Context:
    """Parse a command line as `podgate` would, without running it."""
    context = root.make_context("podgate", list(arguments))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


def seconds(duration: str) -> float:
    return Duration.parse(duration).us / 1_000_000


# --- a Compose file ---


def test_compose_file_is_valid() -> None:
    assert schema_errors(sources.composition()) == []


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("redis", "comand", ["redis-server"]),
        ("podgate", "depends_on", {"redis": {"condition": "service_is_healthy"}}),
        ("podgate", "read_only", ["true"]),
    ],
)
def test_schema_rejects_an_invalid_service(service: str, key: str, value: Any) -> None:
    document = copy.deepcopy(sources.composition())
    document["services"][service][key] = value
    assert schema_errors(document) != []


def test_schema_has_the_documented_digest() -> None:
    digest = hashlib.sha256((SCHEMA / "compose-spec.json").read_bytes()).hexdigest()
    assert f"`{digest}`" in (SCHEMA / "README.md").read_text()


@pytest.mark.parametrize("name", sources.services())
def test_services_volumes_and_files_of_a_service_exist(name: str) -> None:
    document, service = sources.composition(), sources.services()[name]
    assert set(service.needs) <= set(document["services"])
    for source in service.mounts.values():
        assert source in document["volumes"] or (sources.ROOT / source).is_dir(), source
    for path in re.findall(r"/examples/[\w./-]+", " ".join(service.command)):
        assert (EXAMPLES / path.removeprefix("/examples/")).is_file(), path


@pytest.mark.parametrize("name", sources.services())
def test_images_have_a_version_and_no_registry(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(/[a-z]+)?:v?\d+\.\d+(\.\d+)?(-[a-z]+)?", sources.services()[name].image)


# --- the command line ---


@pytest.mark.parametrize(("name", "count"), [("setup", 3), ("podgate", 1), ("replica", 1)])
def test_podgate_parses_each_command(name: str, count: int) -> None:
    commands = sources.services()[name].podgate_commands
    assert len(commands) == count
    for command in commands:
        parse(command)


def test_unknown_flag_is_rejected() -> None:
    with pytest.raises(click.UsageError, match="--polcy"):
        parse([*sources.services()["podgate"].podgate_commands[0], "--polcy=x"])


def test_token_lifetime_is_within_the_maximum_of_the_server() -> None:
    token_command = next(
        words for words in sources.services()["setup"].podgate_commands if words[:2] == ["token", "issue"]
    )
    lifetime = parse(token_command).params["expires_in"]
    assert seconds(lifetime) <= seconds("24h"), "--max-token-lifetime"


# --- the manifests ---


@pytest.mark.parametrize("name", SERVERS)
def test_server_listens_on_the_same_addresses_as_in_a_cluster(name: str) -> None:
    service = sources.services()[name]
    flags = dict(word.split("=", 1) for word in service.command if word.startswith("--"))
    [container] = pod_spec()["containers"]
    assert service.command[:2] == container["command"]
    for flag in ("--listen", "--plain-listen"):
        assert flags[flag] == arguments()[flag]
    assert sorted(service.listens.values()) == sorted(port["containerPort"] for port in container["ports"])


@pytest.mark.parametrize("name", SERVERS)
def test_health_check_requests_the_path_of_the_readiness_probe(name: str) -> None:
    service = sources.services()[name]
    [container] = pod_spec()["containers"]
    path = container["readinessProbe"]["httpGet"]["path"]
    assert f"'http://127.0.0.1:{service.listens['--plain-listen']}{path}'" in " ".join(service.health_check)


@pytest.mark.parametrize("name", SERVERS)
def test_server_has_the_grace_period_and_privileges_of_the_deployment(name: str) -> None:
    service = sources.services()[name]
    [container] = pod_spec()["containers"]
    context = container["securityContext"]
    assert seconds(service.given["stop_grace_period"]) == pod_spec()["terminationGracePeriodSeconds"]
    assert service.image == container["image"]
    assert service.given["read_only"] is context["readOnlyRootFilesystem"]
    assert service.given["cap_drop"] == context["capabilities"]["drop"]
    assert service.given["security_opt"] == ["no-new-privileges:true"]


def test_only_one_server_and_the_views_publish_ports_and_only_on_loopback() -> None:
    published = {
        name: service.given["ports"] for name, service in sources.services().items() if "ports" in service.given
    }
    ports = {"podgate": sources.services()["podgate"].listens.values(), "prometheus": [9090], "grafana": [3000]}
    assert published == {name: [f"127.0.0.1:{port}:{port}" for port in each] for name, each in ports.items()}


def test_replica_differs_only_in_ports_profiles_and_networks() -> None:
    ignored_keys = {"ports", "profiles", "networks"}
    podgate, replica = (
        {key: value for key, value in sources.services()[name].given.items() if key not in ignored_keys}
        for name in SERVERS
    )
    assert podgate == replica
    assert "podgate" in sources.services()["replica"].given["networks"]["default"]["aliases"]


def test_services_that_mount_the_keys_run_as_their_owner() -> None:
    """Only the image's user may read the keys."""
    for name, service in sources.services().items():
        if "pki" in service.mounts.values():
            assert service.given.get("user", sources.find_last("USER").rest) == sources.find_last("USER").rest, name
            assert service.is_ours or "user" in service.given, name


# --- the examples ---


def test_policy_loads_without_warnings() -> None:
    assert load((EXAMPLES / "compose" / "policy.yaml").read_bytes(), Purpose.SERVE).warnings == ()


def test_pod_of_the_traffic_equals_the_output_of_the_mutating_webhook(*, refresh_goldens: bool) -> None:
    path, policy = EXAMPLES / "compose" / "review.json", EXAMPLES / "compose" / "policy.yaml"
    arguments = [EXAMPLES / "review.json", "--policy", policy, "--output", "json"]
    podgate = Path(sys.executable).with_name("podgate")
    done = subprocess.run([podgate, "review", *arguments], check=True, capture_output=True, text=True)
    expected = json.loads(done.stdout)["pod"]
    if refresh_goldens:
        policy_hash = expected["metadata"]["annotations"]["podgate.io/policy-hash"]
        path.write_text(re.sub(r'(?<="podgate.io/policy-hash": ")\w+', policy_hash, path.read_text()))
    pod = json.loads(path.read_text())["request"]["object"]
    assert pod["metadata"].pop("name").startswith(pod["metadata"]["generateName"])
    assert re.fullmatch("[0-]+", pod["metadata"].pop("uid")), "the traffic sets the UID of each Pod"
    assert pod == expected


# --- monitoring ---


def test_prometheus_reads_the_shipped_rules_and_finds_each_server_by_name() -> None:
    service = sources.services()["prometheus"]
    [flag] = [word for word in service.command if word.startswith("--config.file=")]
    document = yaml.safe_load((EXAMPLES / flag.partition("=/examples/")[2]).read_text())
    assert service.mounts["/monitoring"] == "./manifests/monitoring"
    assert [find_mounted(service, path).is_file() for path in document["rule_files"]] == [True]
    [job] = document["scrape_configs"]
    [search] = job["dns_sd_configs"]
    assert search["names"] == ["podgate"]
    assert search["port"] == sources.services()["podgate"].listens["--plain-listen"]


def test_grafana_has_the_shipped_dashboards_and_asks_prometheus() -> None:
    service = sources.services()["grafana"]
    folder = find_mounted(service, service.environment["GF_PATHS_PROVISIONING"])
    [source], [provider] = (
        yaml.safe_load((folder / path).read_text())[key]
        for path, key in (("datasources/prometheus.yaml", "datasources"), ("dashboards/podgate.yaml", "providers"))
    )
    prometheus = sources.services()["prometheus"]
    [listen] = [word for word in prometheus.command if word.startswith("--web.listen-address=")]
    assert source["url"] == f"http://prometheus:{listen.rpartition(':')[2]}"
    dashboards = [
        json.loads(path.read_text()) for path in find_mounted(service, provider["options"]["path"]).glob("*.json")
    ]
    assert {dashboard["uid"] for dashboard in dashboards} == {f"podgate-{path.stem}" for path in FILES}
    variables = [variable for board in dashboards for variable in board["templating"]["list"]]
    assert source["type"] in {variable["query"] for variable in variables if variable["type"] == "datasource"}
    assert find_mounted(service, service.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()


def find_mounted(service: sources.Service, path: str) -> Path:
    """Return the file or folder of the project that a container sees at a path."""
    [(inside, outside)] = [(inside, outside) for inside, outside in service.mounts.items() if path.startswith(inside)]
    return sources.ROOT / outside / path.removeprefix(inside).lstrip("/")
