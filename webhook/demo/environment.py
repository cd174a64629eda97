"""Environment of the demo: a folder with keys and files, a real server process, and a client as API server."""

import asyncio
import contextlib
import os
import secrets
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from certs import (
    Authority,
    build_jwk,
    encode_key,
    format_key_set,
    list_server_names,
    new_key,
    sign,
    write,
    write_key_pair,
)
from webhook.errors import UserError
from webhook.settings import ENVIRONMENT_PREFIX, name_variable

_LAST_LINES = 10
_NAME = "podgate.podgate-system.svc"
_CALLER = "kube-apiserver"
_ISSUER = "https://kubernetes.default.svc"
_IDENTITIES = f"""\
# Who may call: the certificate and the token must agree on one of these.
- role: apiserver
  certificate: {{commonName: {_CALLER}}}
  issuer: {_ISSUER}
  audience: podgate
  subject: {_CALLER}
  clientId: {{claim: client_id}}
"""
OVERRIDES = "overrides.yaml"
_FILES = {
    "--policy": "policy.yaml",
    "--tls-cert": "server.crt",
    "--tls-key": "server.key",
    "--client-ca": "ca.crt",
    "--jwks": "jwks.json",
    "--identities": "identities.yaml",
    "--overrides": OVERRIDES,
}


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server, and the addresses of its ports."""

    process: asyncio.subprocess.Process
    admission: str
    plain: str
    decisions: str


def make_files(folder: Path) -> None:
    """Write a CA, certificates, a signing key with its JWKS, a token, identities and the policy."""
    authority = Authority.create("podgate-demo-ca")
    write_key_pair(authority.key_pair, folder / "ca.crt", folder / "ca.key")
    serving = authority.issue_server(_NAME, (*list_server_names(_NAME), *list_server_names("127.0.0.1")))
    write_key_pair(serving, folder / "server.crt", folder / "server.key")
    write_key_pair(authority.issue_client(_CALLER), folder / "client.crt", folder / "client.key")
    key = new_key("ES256")
    write(folder / "token.key", encode_key(key), secret=True)
    write(folder / "jwks.json", format_key_set([build_jwk(key.public_key())]).encode(), secret=False)
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": "podgate", "sub": _CALLER, "client_id": "demo", "iat": now, "exp": now + 12 * 3600}
    write(folder / "token", sign(key, claims).encode(), secret=True)
    (folder / "identities.yaml").write_text(_IDENTITIES)
    (folder / "policy.yaml").write_bytes(files("webhook.demo").joinpath("demo_policy.yaml").read_bytes())


@contextlib.asynccontextmanager
async def run_server(folder: Path, redis: str | None) -> AsyncIterator[RunningServer]:
    """Run `podgate serve` on free loopback ports until the block ends; its log goes to `server.log`."""
    arguments = [word for flag, name in _FILES.items() for word in (flag, str(folder / name))]
    arguments += ["--listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0", "--decision-listen", "127.0.0.1:0"]
    arguments += ["--drain", "1s"]
    if redis is not None:
        # A cluster name of its own: existing counters in this Redis are neither used nor changed.
        arguments += ["--cluster", f"demo-{secrets.token_hex(4)}", "--store-deadline", "1s"]
    log = folder / "server.log"
    # The user's environment may have settings of a real server.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    if redis is not None:
        # Not an argument, which all users can see: the URL may have a password.
        environment[name_variable("store")] = redis
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "webhook", "serve", *arguments, stdout=stream, stderr=stream, env=environment
        )
    try:
        yield await _wait_until_listening(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _wait_until_listening(process: asyncio.subprocess.Process, log: Path) -> RunningServer:
    """Wait for the log line with the server's addresses."""
    while process.returncode is None:
        entry = _find_log_line(log, "listening")
        if entry is not None:
            return RunningServer(process, *(entry[port][0] for port in ("admission", "plain", "decisions")))
        await asyncio.sleep(0.05)
    raise UserError(f"the server did not start: {read_last_words(log)}")


def read_last_words(log: Path) -> str:
    """Return the end of a server's log, whose file is deleted with the demo's folder."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:]) or "it said nothing"


def _find_log_line(log: Path, message: str) -> dict[str, Any] | None:
    """Return the first entry of the log with this message; None if there is none."""
    for line in log.read_bytes().splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            entry: dict[str, Any] = msgspec.json.decode(line)
            if entry.get("msg") == message:
                return entry
    return None


class ApiServer:
    """Calls the webhook as kube-apiserver does: client certificate, bearer token, HTTP/1.1, `?timeout=10s`."""

    def __init__(self, folder: Path, running: RunningServer) -> None:
        self._running = running
        self._token = (folder / "token").read_text()
        self._session = aiohttp.ClientSession(headers={"User-Agent": "kube-apiserver-admission"})
        self._anonymous_context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._client_context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._client_context.load_cert_chain(folder / "client.crt", folder / "client.key")

    async def close(self) -> None:
        await self._session.close()

    async def send(self, path: str, review: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `response` of one AdmissionReview; UserError for any other response."""
        status, body = await self.post(path, review)
        if status != 200:  # noqa: PLR2004  HTTP OK
            raise UserError(f"the server answered {status}: {body.decode().strip()}", "see server.log")
        answer: dict[str, Any] = msgspec.json.decode(body)["response"]
        return answer

    async def post(
        self, path: str, review: Mapping[str, Any], *, certificate: bool = True, token: str | None = None
    ) -> tuple[int, bytes]:
        """Send a review, with or without a certificate, and with `token` instead of the valid one."""
        bearer = self._token if token is None else token
        async with self._session.post(
            f"https://{self._running.admission}{path}?timeout=10s",
            data=msgspec.json.encode(review),
            headers={"Content-Type": "application/json", **({"Authorization": f"Bearer {bearer}"} if bearer else {})},
            ssl=self._client_context if certificate else self._anonymous_context,
            server_hostname=_NAME,
        ) as response:
            return response.status, await response.read()

    async def get_service(self) -> dict[str, Any]:
        service: dict[str, Any] = (await self.get_status())["services"][0]
        return service

    async def get_status(self) -> dict[str, Any]:
        async with self._session.get(f"http://{self._running.plain}/status") as response:
            status: dict[str, Any] = await response.json()
            return status

    async def get_metrics(self) -> str:
        async with self._session.get(f"http://{self._running.plain}/metrics") as response:
            return await response.text()
