"""`podgate status` against a health port: output and errors."""

import json
from collections.abc import Callable

import msgspec
import pytest

from tests.app.status_command import DOCUMENT, plain_port
from tests.harness.nesting import TOO_DEEP
from webhook.cli import main
from webhook.core.reporting.status import (
    ControllerStatus,
    WatchStatus,
    render_controller_status,
)
from webhook.core.reporting.status_parts import StoreStatus
from webhook.support.input_files import INPUT_BYTES_MAX

Podgate = Callable[..., int]
"""Runs `podgate status` with arguments, and returns its exit code."""


@pytest.fixture
def podgate(monkeypatch: pytest.MonkeyPatch) -> Podgate:
    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["podgate", "status", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        assert isinstance(exit_info.value.code, int)
        return exit_info.value.code

    return run


def test_status_prints_the_whole_document_without_a_terminal(
    podgate: Podgate, capsys: pytest.CaptureFixture[str]
) -> None:
    with plain_port() as url:
        assert podgate("--server", url) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(DOCUMENT)


def test_status_table_is_plain_without_a_terminal(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port() as url:
        assert podgate("-o", "table", "--server", f"{url}/") == 0
    out = capsys.readouterr().out
    assert "payment-api  bronze  CLOSED   1m      pods      37    50    now" in out
    assert "ledger       bronze  unknown  -" in out


def test_status_of_one_service(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port() as url:
        assert podgate("ledger", "--server", url) == 0
    assert [service["name"] for service in json.loads(capsys.readouterr().out)["services"]] == ["ledger"]


def test_unknown_service_exits_4_and_lists_the_services(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port() as url:
        assert podgate("paymnet-api", "--server", url) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: no service 'paymnet-api': the policy in force has payment-api, ledger\n"


def test_status_of_an_unreachable_server(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port() as url:
        pass
    assert podgate("--server", url) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: no server answers at {url}/status: ")
    assert "podgate serve" in printed
    assert printed.count("\n") == 1


def test_proxy_of_the_environment_is_not_used_for_loopback(
    podgate: Podgate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with plain_port() as url:
        assert podgate("--server", url) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("body", "code", "printed"),
    [
        (b"not found", 404, "HTTP 404"),
        (b"<html>", 200, "answers, but not as Podgate does"),
        (b"[]", 200, "answers, but not as Podgate does"),
        (b"\xff\xfe", 200, "answers, but not as Podgate does"),
        (b'{"services": 3}', 200, "answers, but not as Podgate does"),
        (f'{{"services": [], "x": {TOO_DEEP}}}'.encode(), 200, "answers, but not as Podgate does"),
    ],
)
def test_status_from_another_program_on_the_port(
    podgate: Podgate, capsys: pytest.CaptureFixture[str], body: bytes, code: int, printed: str
) -> None:
    with plain_port(body, code) as url:
        assert podgate("--server", url) == 2
    error = capsys.readouterr().err
    assert printed in error
    assert "--plain-listen" in error


CONTROLLER = msgspec.json.encode(
    render_controller_status(
        ControllerStatus(
            version="0.1.0",
            waits_for="podgate-controller-b leads",
            source="ConfigMap podgate-system/podgate-policy",
            errors=["services: missing"],
            store=StoreStatus("redis", "timeout: no answer within 2000 ms"),
            watches={"pods": WatchStatus(), "policy": WatchStatus(error="HTTP 403")},
            certificates={
                "keptBy": "controller",
                "errors": ["x"],
                "secrets": {"podgate-tls": "2026-12-01T00:00:00Z"},
            },
            not_ready=["no good policy: none was found"],
        )
    )
)


def test_status_shows_a_controller(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port(CONTROLLER) as url:
        assert podgate("-o", "table", "--server", url) == 0
        assert capsys.readouterr().out.splitlines() == [
            "podgate 0.1.0, controller: stands by: podgate-controller-b leads",
            "not ready: no good policy: none was found",
            "policy  none from ConfigMap podgate-system/podgate-policy",
            "store   redis: timeout: no answer within 2000 ms",
            "policy refused: services: missing",
            "watch   pods: ok",
            "watch   policy: HTTP 403",
            "certificates  kept by controller",
            "certificate podgate-tls: until 2026-12-01T00:00:00Z",
            "certificates: x",
            "services, quotas and breakers are shown by podgate serve: give --server its plain port",
        ]
        assert podgate("--server", url) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(CONTROLLER)


def test_status_of_a_service_from_a_controller_names_the_remedy(
    podgate: Podgate, capsys: pytest.CaptureFixture[str]
) -> None:
    with plain_port(CONTROLLER) as url:
        assert podgate("payment-api", "--server", url) == 2
    assert capsys.readouterr().err == (
        f"error: {url} is a controller, which shows no services: give --server the plain port (--plain-listen) of"
        f" podgate serve; podgate status --server {url} shows the controller itself\n"
    )


@pytest.mark.parametrize("server", ["file:///etc/passwd", "127.0.0.1:8081", "http://", "http://[", "http://h:port"])
def test_invalid_server_url_is_rejected(podgate: Podgate, capsys: pytest.CaptureFixture[str], server: str) -> None:
    assert podgate("--server", server) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_endless_response_is_rejected(podgate: Podgate, capsys: pytest.CaptureFixture[str]) -> None:
    with plain_port(bytes(INPUT_BYTES_MAX + 1)) as url:
        assert podgate("--server", url) == 2
    assert f"{url}/status: more than 64 MiB" in capsys.readouterr().err
