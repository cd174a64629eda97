"""Discovery of the server that `podgate status`, `breaker list` and `quota show` read, and completion of services."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from click.shell_completion import BashComplete

from tests.app.server_discovery import API, PROXY, cluster, unused_local_port
from tests.app.status_command import DOCUMENT
from tests.cli.command_runner import podgate
from tests.harness.canned_http import serve_answers
from webhook.cli import root
from webhook.commands.clients import status_client

__all__ = ["unused_local_port"]

RECORD = f"{API}/configmaps/podgate-installation"
SERVER = {"/healthz": (200, b"ok"), "/status": (200, DOCUMENT)}
PROXIED = {PROXY + path: answer for path, answer in SERVER.items()}


def test_server_is_found_through_the_plain_ports(tmp_path: Path) -> None:
    with cluster(tmp_path, PROXIED) as kubeconfig:
        done = podgate("status", "--kubeconfig", kubeconfig)
    assert (done.code, json.loads(done.out)) == (0, json.loads(DOCUMENT))
    assert done.err.startswith("server: service podgate-system/podgate-metrics through http://127.0.0.1:")


def test_right_to_the_service_suffices(tmp_path: Path) -> None:
    refused = json.dumps({"message": "configmaps is forbidden"}).encode()
    with cluster(tmp_path, {**PROXIED, RECORD: (403, refused)}) as kubeconfig:
        assert podgate("status", "--kubeconfig", kubeconfig).code == 0


@pytest.mark.parametrize("command", [("breaker", "list"), ("quota", "show", "payment-api"), ("status", "ledger")])
def test_each_command_finds_the_server(tmp_path: Path, command: tuple[str, ...]) -> None:
    with cluster(tmp_path, PROXIED) as kubeconfig:
        assert podgate(*command, "--kubeconfig", kubeconfig).code == 0


def test_server_outside_the_cluster_is_the_recorded_one(tmp_path: Path) -> None:
    with serve_answers(SERVER) as url:
        record = json.dumps({"data": {"statusURL": url}}).encode()
        with cluster(tmp_path, {RECORD: (200, record)}) as kubeconfig:
            done = podgate("status", "--kubeconfig", kubeconfig)
    assert (done.code, done.err) == (0, f"server: {url}\n")


def test_server_on_this_machine_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_answers(SERVER) as url, cluster(tmp_path, {}) as kubeconfig:
        monkeypatch.setattr(status_client, "DEFAULT_SERVER", url)
        done = podgate("status", "--kubeconfig", kubeconfig)
    assert (done.code, done.err) == (0, f"server: {url}\n")


def test_named_server_is_the_only_one_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_answers(SERVER) as url, cluster(tmp_path, {}) as kubeconfig:
        monkeypatch.setenv("PODGATE_SERVER", url)
        done = podgate("status", "--kubeconfig", kubeconfig)
    assert (done.code, done.err) == (0, "")


def test_error_lists_what_was_tried(tmp_path: Path, unused_local_port: str) -> None:
    refused = json.dumps({"message": "services is forbidden"}).encode()
    with cluster(tmp_path, {PROXY + "/healthz": (403, refused)}) as kubeconfig:
        done = podgate("status", "--kubeconfig", kubeconfig)
    assert done.code == 2
    first, proxied, local = done.err.splitlines()
    assert first.startswith("error: no server answers: start one with `podgate serve`, or give --server")
    assert "HTTP 403: services is forbidden: grant the right to get services/proxy" in proxied
    assert local.startswith(f"  no server answers at {unused_local_port}/healthz: ")


def test_unusable_kubeconfig_is_among_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    assert (
        f"\n  {path}: not a usable kubeconfig: current-context is not set\n"
        in podgate("status", "--kubeconfig", path).err
    )
    path.unlink()
    assert f"\n  {path}: there is no kubeconfig\n" in podgate("status", "--kubeconfig", path).err


@pytest.mark.parametrize("command", [("status",), ("breaker", "list"), ("quota", "show", "payment-api")])
def test_yaml_is_the_same_document_as_json(command: tuple[str, ...]) -> None:
    with serve_answers(SERVER) as url:
        shown = [podgate(*command, "--server", url, "-o", form).out for form in ("yaml", "json")]
    assert yaml.safe_load(shown[0]) == json.loads(shown[1])


def test_wide_list_has_more_columns() -> None:
    with serve_answers(SERVER) as url:
        wide = podgate("breaker", "list", "--server", url, "-o", "wide").out.splitlines()
    assert wide[0].split()[-6:] == ["MODE", "GENERATION", "OPEN", "UNTIL", "TRIPPED", "BY"]
    assert wide[1].split()[:2] == ["payment-api", "CLOSED"]
    assert "Enforce" in wide[1]


@pytest.mark.parametrize("command", [("status",), ("breaker", "list"), ("quota", "show", "payment-api")])
def test_watch_shows_again_and_survives_a_restart(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = dict(SERVER)
    rounds = 0

    async def pass_time(_: float) -> None:
        nonlocal rounds
        rounds += 1
        answers["/status"] = [(503, b""), (200, DOCUMENT)][rounds - 1] if rounds < 3 else (200, b"")
        if rounds == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "sleep", pass_time)
    with serve_answers(answers) as url:
        done = podgate(*command, "--server", url, "--watch", "-o", "json")
    assert done.code == 130
    assert done.out.count('"payment-api"') == 2
    assert done.err.startswith(f"error: {url}/status: HTTP 503")


def complete(*words: str) -> list[str]:
    *before, incomplete = words
    shell = BashComplete(root, {}, "podgate", "_PODGATE_COMPLETE")
    return [str(item.value) for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize("command", ["status", "quota show", "quota grant", "breaker open", "override"])
def test_shell_completes_services_of_the_server(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_answers(SERVER) as url:
        monkeypatch.setattr(status_client, "DEFAULT_SERVER", url)
        monkeypatch.setenv("KUBECONFIG", "/nowhere")
        assert complete(*command.split(), "pay") == ["payment-api"]


def test_shell_completes_services_of_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    services = [{"name": name, "match": {"namespaces": [name]}} for name in ("shop", "ship", "web")]
    path.write_text(yaml.safe_dump({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}))
    assert complete("override", "--policy", str(path), "sh") == ["shop", "ship"]


def test_completion_without_a_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert complete("status", "pay") == []
