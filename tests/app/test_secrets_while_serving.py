"""No message of a running server shows the content of an invalid secret file."""

import asyncio
from pathlib import Path

import pytest

from tests.harness.raw_http import BODY, eventually, format_length, head, line
from tests.harness.server_process import Files, Serving, run_server
from tests.secrets import PASSWORD, SECRET_FILES, SecretFile
from tests.server.hardening import log

WATCHED = ("certificates", "published bundle", "key set", "identities", "denied tokens")
KINDS = ("a private key", "a password", "a broken kubeconfig", "a JWT", "a .env file")


async def visible_output(server: Serving) -> str:
    """Return the log and the pages of a server."""
    pages = [await server.get(path) for path in ("/status", "/readyz", "/metrics")]
    return "\n".join((log(server), *(text for _, text in pages)))


@pytest.mark.parametrize("kind", KINDS)
async def test_wrong_file_is_rejected_without_quoting_it(tmp_path: Path, kind: str) -> None:
    files, secret_file = Files.create(tmp_path), SECRET_FILES[kind]
    overrides, denied, bundle = tmp_path / "overrides.yaml", tmp_path / "denied.yaml", tmp_path / "bundle.crt"
    overrides.write_text("")
    denied.write_text("[]")
    bundle.write_text((tmp_path / "ca.crt").read_text())
    arguments = ("--overrides", str(overrides), "--denied-tokens", str(denied), "--serving-ca", str(bundle))
    async with run_server(files, *arguments, "--drain", "0s") as server:
        paths = (files.policy, overrides, denied, bundle, tmp_path / "jwks.json", tmp_path / "identities.yaml")
        for path in (*paths, files.pki.paths.certificate, files.pki.paths.key):
            path.write_text(secret_file.text)

        async def has_rejected_all() -> bool:
            gauges = [f'podgate_file_last_reload_successful{{file="{name}"}}' for name in WATCHED]
            gauges += ["podgate_policy_last_reload_successful", "podgate_overrides_last_reload_successful"]
            return not any([await server.metric(gauge) for gauge in gauges])

        await eventually(has_rejected_all, 60)
        assert secret_file.find_shown(await visible_output(server)) == set()


async def test_urls_are_logged_without_passwords(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    arguments = (
        *("--store", f"redis://podgate:{PASSWORD}@127.0.0.1:1/0"),
        *("--jwks-url", f"https://127.0.0.1:1/jwks.json?key={PASSWORD}"),
        *("--otlp-endpoint", f"http://podgate:{PASSWORD}@127.0.0.1:1/v1/traces?key={PASSWORD}", "--trace-ratio", "1"),
    )
    async with run_server(files, *arguments, "--drain", "0s") as server:
        async with line(server) as connection:
            connection.send(head(server, format_length()), BODY)
            await connection.answer()
        await eventually(
            lambda: asyncio.to_thread(lambda: "127.0.0.1:1/jwks.json" in log(server) and "opentelemetry" in log(server))
        )
        output = await visible_output(server)
    assert SecretFile("", (PASSWORD,)).find_shown(output + log(server)) == set()
