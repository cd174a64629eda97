"""docker-compose.yml, parsed: it agrees with the command line, the manifests and the examples."""

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

from tests.cluster.manifests import arguments, pod_spec
from tests.compose import sources
from webhook.cli import root
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.quantity import Duration

SCHEMA = Path(__file__).parent / "schema"
EXAMPLES = sources.ROOT / "docs" / "examples"
OURS = ("setup", "podgate", "replica")
SERVERS = ("podgate", "replica")


def objections(document: Any) -> list[str]:
    schema = json.loads((SCHEMA / "compose-spec.json").read_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def read(arguments: list[str]) -> click.Context:
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


def test_the_schema_has_no_objection() -> None:
    assert objections(sources.composition()) == []


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("redis", "comand", ["redis-server"]),
        ("podgate", "depends_on", {"redis": {"condition": "service_is_healthy"}}),
        ("podgate", "read_only", ["true"]),
    ],
)
def test_the_schema_objects_to_a_mistake(service: str, key: str, value: Any) -> None:
    document = copy.deepcopy(sources.composition())
    document["services"][service][key] = value
    assert objections(document) != []


def test_the_schema_is_the_one_that_its_note_says() -> None:
    digest = hashlib.sha256((SCHEMA / "compose-spec.json").read_bytes()).hexdigest()
    assert f"`{digest}`" in (SCHEMA / "README.md").read_text()


@pytest.mark.parametrize("name", sources.services())
def test_what_a_service_names_is_there(name: str) -> None:
    document, service = sources.composition(), sources.services()[name]
    assert set(service.needs) <= set(document["services"])
    for source in service.mounts.values():
        assert source in document["volumes"] or (sources.ROOT / source).is_dir(), source
    for path in re.findall(r"/examples/[\w./-]+", " ".join(service.command)):
        assert (EXAMPLES / path.removeprefix("/examples/")).is_file(), path


@pytest.mark.parametrize("name", sources.services())
def test_images_have_a_version_and_no_registry(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(/[a-z]+)?:\d+\.\d+(\.\d+)?(-[a-z]+)?", sources.services()[name].image)


# --- the command line ---


@pytest.mark.parametrize(("name", "count"), [("setup", 3), ("podgate", 1), ("replica", 1)])
def test_each_command_is_one_that_podgate_understands(name: str, count: int) -> None:
    commands = sources.services()[name].podgate_commands
    assert len(commands) == count
    for command in commands:
        read(command)


def test_a_flag_that_podgate_does_not_have_is_noticed() -> None:
    with pytest.raises(click.UsageError, match="--polcy"):
        read([*sources.services()["podgate"].podgate_commands[0], "--polcy=x"])


def test_the_token_lives_as_long_as_a_server_accepts() -> None:
    told = next(words for words in sources.services()["setup"].podgate_commands if words[:2] == ["token", "issue"])
    lifetime = read(told).params["expires_in"]
    assert seconds(lifetime) <= seconds("24h"), "--max-token-lifetime"


# --- the manifests ---


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_listens_where_it_does_in_a_cluster(name: str) -> None:
    service = sources.services()[name]
    flags = dict(word.split("=", 1) for word in service.command if word.startswith("--"))
    [container] = pod_spec()["containers"]
    assert service.command[:2] == container["command"]
    for flag in ("--listen", "--plain-listen"):
        assert flags[flag] == arguments()[flag]
    assert sorted(service.listens.values()) == sorted(port["containerPort"] for port in container["ports"])


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_healthy_when_it_would_be_ready_in_a_cluster(name: str) -> None:
    service = sources.services()[name]
    [container] = pod_spec()["containers"]
    path = container["readinessProbe"]["httpGet"]["path"]
    assert f"'http://127.0.0.1:{service.listens['--plain-listen']}{path}'" in " ".join(service.health_check)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_the_time_to_stop_and_the_rights_that_it_has_in_a_cluster(name: str) -> None:
    service = sources.services()[name]
    [container] = pod_spec()["containers"]
    context = container["securityContext"]
    assert seconds(service.given["stop_grace_period"]) == pod_spec()["terminationGracePeriodSeconds"]
    assert service.image == container["image"]
    assert service.given["read_only"] is context["readOnlyRootFilesystem"]
    assert service.given["cap_drop"] == context["capabilities"]["drop"]
    assert service.given["security_opt"] == ["no-new-privileges:true"]


def test_only_one_server_is_published_and_only_to_this_machine() -> None:
    published = {
        name: service.given["ports"] for name, service in sources.services().items() if "ports" in service.given
    }
    ports = sources.services()["podgate"].listens.values()
    assert published == {"podgate": [f"127.0.0.1:{port}:{port}" for port in ports]}


def test_a_replica_differs_in_nothing_else() -> None:
    own = {"ports", "profiles", "networks"}
    podgate, replica = (
        {key: value for key, value in sources.services()[name].given.items() if key not in own} for name in SERVERS
    )
    assert podgate == replica
    assert "podgate" in sources.services()["replica"].given["networks"]["default"]["aliases"]


def test_whoever_reads_keys_is_their_owner() -> None:
    """They are written by the image's user, and readable by it alone."""
    for name, service in sources.services().items():
        if "pki" in service.mounts.values():
            assert service.given.get("user", sources.last("USER").rest) == sources.last("USER").rest, name
            assert service.is_ours or "user" in service.given, name


# --- the examples ---


def test_the_policy_is_good() -> None:
    assert load((EXAMPLES / "compose" / "policy.yaml").read_bytes(), Purpose.SERVE).warnings == ()


def test_the_traffics_pod_is_as_the_mutating_half_leaves_it(*, refresh_goldens: bool) -> None:
    path, policy = EXAMPLES / "compose" / "review.json", EXAMPLES / "compose" / "policy.yaml"
    told = [EXAMPLES / "review.json", "--policy", policy, "--output", "json"]
    podgate = Path(sys.executable).with_name("podgate")
    done = subprocess.run([podgate, "review", *told], check=True, capture_output=True, text=True)
    expected = json.loads(done.stdout)["pod"]
    if refresh_goldens:
        wanted = expected["metadata"]["annotations"]["podgate.io/policy-hash"]
        path.write_text(re.sub(r'(?<="podgate.io/policy-hash": ")\w+', wanted, path.read_text()))
    pod = json.loads(path.read_text())["request"]["object"]
    assert pod["metadata"].pop("name").startswith(pod["metadata"]["generateName"])
    assert re.fullmatch("[0-]+", pod["metadata"].pop("uid")), "the traffic gives each its own"
    assert pod == expected
