"""Start and end of a server: errors in one line, signals at any time, no lost call."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority
from certs.files import write_key_pair
from tests.harness.identity import Pki
from tests.harness.raw_http import BODY, eventually, format_length, head, line, status
from tests.harness.server_process import Files, Serving, run_server
from tests.timeouts import HANG_SECONDS
from webhook.app import supervision


async def _is_closed(server: Serving) -> bool:
    try:
        async with line(server):
            return False
    except OSError:
        return True


async def _is_draining(server: Serving) -> bool:
    return await server.get("/readyz") == (503, "draining\n")


async def test_draining_server_is_not_ready_and_serves_until_a_second_signal(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path), "--drain", "60s") as server, line(server) as idle:
        idle.send(head(server, format_length()) + BODY)
        assert b"Connection: close" not in await idle.answer()
        server.process.terminate()
        await eventually(lambda: _is_draining(server))
        assert (await server.get("/healthz"))[0] == 200
        async with line(server) as new_connection:
            new_connection.send(head(server, format_length()) + BODY)
            answer = await new_connection.answer()
            assert (status(answer), b"Connection: close" in answer) == (200, True)
        server.process.terminate()
        assert await asyncio.wait_for(server.process.wait(), HANG_SECONDS) == 0
        assert await idle.is_cut()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_idle_connections_do_not_prolong_the_drain(tmp_path: Path, number: signal.Signals) -> None:
    async with run_server(Files.create(tmp_path), "--drain", "300ms") as server, line(server) as idle:
        idle.send(head(server, format_length()) + BODY)
        assert status(await idle.answer()) == 200
        server.process.send_signal(number)
        assert await asyncio.wait_for(server.process.wait(), HANG_SECONDS) == 0
        assert await idle.is_cut()


async def test_body_that_arrives_after_the_drain_is_answered(tmp_path: Path) -> None:
    timeouts = ("--drain", "100ms", "--body-timeout", "20s", "--grace", "30s")
    async with run_server(Files.create(tmp_path), *timeouts) as server, line(server) as slow:
        slow.send(head(server, format_length()), BODY[:10])
        await server.wait_for_metric("podgate_calls_in_flight", 1)
        server.process.terminate()
        await eventually(lambda: _is_closed(server))
        slow.send(BODY[10:])
        assert status(await slow.answer()) == 200
        assert await slow.is_cut()
        assert await asyncio.wait_for(server.process.wait(), HANG_SECONDS) == 0


async def test_endless_body_does_not_prolong_the_grace_period(tmp_path: Path) -> None:
    timeouts = ("--drain", "100ms", "--body-timeout", "10m", "--grace", "300ms")
    async with run_server(Files.create(tmp_path), *timeouts) as server, line(server) as slow:
        slow.send(head(server, format_length()), BODY[:10])
        await server.wait_for_metric("podgate_calls_in_flight", 1)
        server.process.terminate()
        assert await asyncio.wait_for(server.process.wait(), HANG_SECONDS) == 0


async def test_signal_during_the_start_ends_the_server_orderly(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webhook", "serve", *Files.create(tmp_path).arguments()), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(HANG_SECONDS):
        output = await process.stderr.readline()
        process.terminate()
        assert b"policy loaded" in output  # it listens only after that
        output = await process.stderr.read()
    assert await process.wait() == 0, output
    assert b'"stopped"' in output
    assert b"Traceback" not in output


async def test_server_with_expired_certificates_is_not_ready_until_they_are_renewed(
    tmp_path: Path,
) -> None:
    files, issued_at = Files.create(tmp_path), datetime.now(UTC) - timedelta(days=2)
    paths, valid_ca = files.pki.paths, (files.pki.folder / "ca.crt").read_bytes()
    expired_ca = Authority.create("dead", timedelta(days=1), issued_at).key_pair.certificate
    (files.pki.folder / "ca.crt").write_bytes(expired_ca.public_bytes(Encoding.PEM))
    leaf = files.pki.authority.issue_server("localhost", (), timedelta(days=1), now=issued_at)
    write_key_pair(leaf, paths.certificate, paths.key, replace=True)
    async with run_server(files) as server:
        reasons = "the serving certificate has expired\nall CAs of clients have expired\n"
        assert await server.get("/readyz") == (503, reasons)
        assert "\npodgate_ready 0.0\n" in (await server.get("/metrics"))[1]
        (files.pki.folder / "ca.crt").write_bytes(valid_ca)
        files.pki.renew_server()
        await eventually(lambda: _is_ready(server))


async def _is_ready(server: Serving) -> bool:
    return (await server.get("/readyz"))[0] == 200


async def test_failed_watch_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_AGAIN_SECONDS", 0)
    output: list[str] = []
    logs = SimpleNamespace(write_event=lambda _level, _message, reason: output.append(reason))
    rounds = 0

    async def watch() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise asyncio.CancelledError
        raise RuntimeError(f"defect {rounds}")

    with pytest.raises(asyncio.CancelledError):
        await supervision.run_forever(watch, logs)  # type: ignore[arg-type]  the only method that it calls
    assert output == ["RuntimeError('defect 1')", "RuntimeError('defect 2')"]


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="the host has no IPv6")
async def test_server_listens_on_ipv6(tmp_path: Path) -> None:
    arguments = ("--listen", "[::1]:0", "--plain-listen", "[::1]:0")
    async with run_server(Files.create(tmp_path), *arguments) as server:
        assert server.plain.startswith("[::1]:")
        assert (await server.get("/readyz")) == (200, "ok\n")


# --------------------------------------------------------------------------------------------------------- user errors


def start_error(files: Files, *arguments: str) -> str:
    """Run a server that cannot start; return its error line."""
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "serve", *files.arguments(), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return last


def _wrong_key(files: Files) -> None:
    elsewhere = files.folder / "elsewhere"
    elsewhere.mkdir()
    files.pki.paths.key.write_bytes(Pki.create(elsewhere).paths.key.read_bytes())


def _no_key(files: Files) -> None:
    files.pki.paths.key.write_text("nothing")


def _no_certificate(files: Files) -> None:
    files.pki.paths.certificate.write_text("nothing")


def _leaf_for_a_ca(files: Files) -> None:
    files.pki.paths.client_ca.write_bytes(files.pki.paths.certificate.read_bytes())


def _no_ca(files: Files) -> None:
    files.pki.paths.client_ca.write_text("")


def _private_jwks(files: Files) -> None:
    path = files.folder / "jwks.json"
    document = json.loads(path.read_text())
    document["keys"][0]["d"] = "c2VjcmV0"
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("break_file", "message"),
    [
        (_wrong_key, "server.key make no certificate with its key: key values mismatch: give a PEM certificate"),
        (_no_key, "server.key make no certificate with its key"),
        (_no_certificate, "server.crt: holds no certificate in PEM: give a file with BEGIN CERTIFICATE"),
        (_leaf_for_a_ca, "ca.crt: CN=localhost is not a CA certificate: give the CA that issues"),
        (_no_ca, "ca.crt: holds no certificate in PEM"),
        (_private_jwks, "holds private key material (d): this key is compromised, make a new one"),
    ],
)
def test_a_bad_file_is_one_line_with_a_remedy(
    tmp_path: Path, break_file: Callable[[Files], None], message: str
) -> None:
    files = Files.create(tmp_path)
    break_file(files)
    output = start_error(files)
    assert message in output
    assert "c2VjcmV0" not in output


@pytest.mark.parametrize("flag", ["--listen", "--plain-listen"])
def test_a_port_in_use_is_one_line_with_a_remedy(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        output = start_error(Files.create(tmp_path), flag, address)
    assert output == f"error: cannot listen on {address}: Address already in use: choose another address or port"
