"""Client of `podgate review --server`: sends dry-run AdmissionReviews to a running server."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from webhook.commands.simulator import ReviewServerError
from webhook.core.admission.decision import Decision, DecisionInputs, Dependence, Deviation, Half, StageNote, Verdict
from webhook.core.json_depth import UNREADABLE_JSON, bound_depth
from webhook.core.kubernetes.admission_request import ALLOWED, BadReviewError, ResponseStatus
from webhook.core.patch import Patch, PatchOperation
from webhook.core.plain_text import escape_line
from webhook.core.shares import PodSlot
from webhook.errors import UserError
from webhook.interceptor import Answer
from webhook.support.http_timeout import build_socket_timeouts
from webhook.support.input_files import INPUT_BYTES_MAX, read_content
from webhook.tls.handshake_probe import describe_error


class ServerOptions(NamedTuple):
    """A server's URL, and the client's files; None for a file that is not given."""

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    tls_name: str | None = None


_TIMEOUT_SECONDS = 10
_ECHO_BYTES_MAX = 1000  # bytes of a response that is not a review
_IDENTITY = "give --cert, --key and --token-file of an identity that may send reviews (docs/identities.md)"


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    allowed: bool
    patch: bytes = b"[]"
    status: _Status = _Status()
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = {}


class _AdmissionReview(msgspec.Struct, frozen=True):
    response: _Response


class RemoteInterceptor:
    """Sends reviews to a server, and parses its decisions."""

    def __init__(self, session: aiohttp.ClientSession, options: ServerOptions, context: ssl.SSLContext) -> None:
        self._session = session
        self._url = options.url.rstrip("/")
        self._context = context
        self._tls_name = options.tls_name
        self._headers = {"Content-Type": "application/json"}
        if options.token is not None:
            self._headers["Authorization"] = f"Bearer {_read_token(options.token)}"

    async def review(self, half: Half, body: bytes) -> Answer:
        """Send one AdmissionReview. BadReviewError: it is invalid; UserError: no decision was returned."""
        url = f"{self._url}/{half}"
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                status, answer = await self._post(url, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            remedy = "check the URL, and --ca, --cert, --key and --tls-server-name"
            raise ReviewServerError(f"{url}: {_find_reason(error)}", remedy) from None
        if status == HTTPStatus.OK:
            return Answer(answer, _parse_decision(half, answer, url))
        text = escape_line(answer[:_ECHO_BYTES_MAX].decode(errors="replace").strip())
        if status == HTTPStatus.BAD_REQUEST:
            raise BadReviewError(text)
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise ReviewServerError(f"{url}: HTTP {status}: {text}", _IDENTITY)
        raise UserError(f"{url}: HTTP {status}: {text}", "see the server's log")

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        async with self._session.post(
            f"{url}?timeout={_TIMEOUT_SECONDS}s",
            data=body,
            headers=self._headers,
            ssl=self._context,
            server_hostname=self._tls_name,
            allow_redirects=False,
        ) as response:
            found = bytearray()
            async for chunk in response.content.iter_any():
                found += chunk
                if len(found) > INPUT_BYTES_MAX:
                    raise ReviewServerError(
                        f"{url}: more than {INPUT_BYTES_MAX >> 20} MiB", "give the URL of podgate serve"
                    )
            return response.status, bytes(found)


def _find_reason(error: Exception) -> str:
    """Return why a server could not be reached: the cause, without the client library's wrapping."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    return describe_error(cause).rstrip(".") or f"no answer within {_TIMEOUT_SECONDS}s"


@asynccontextmanager
async def open_remote(options: ServerOptions) -> AsyncIterator[RemoteInterceptor]:
    """Yield a client for a server."""
    parts = urlsplit(options.url)
    # The rest of a URL may be a secret: a password, or the path of a server in reduced mode.
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.path not in {"", "/"}:
        raise UserError("--server: not the URL of an admission port", "write one such as https://127.0.0.1:8443")
    context = _build_context(options)
    async with aiohttp.ClientSession(timeout=build_socket_timeouts()) as session:
        yield RemoteInterceptor(session, options, context)


def _build_context(options: ServerOptions) -> ssl.SSLContext:
    files = [path for path in (options.ca, options.certificate, options.key) if path is not None]
    for path in files:
        read_content(path)  # checks the size, which OpenSSL does not limit
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.certificate is not None:
            context.load_cert_chain(options.certificate, options.key, password="")
    except (OSError, ValueError):  # an ssl.SSLError is one
        remedy = "give certificates in PEM, and a key without passphrase"
        raise UserError(f"{', '.join(map(str, files))}: not PEM, or certificate and key do not match", remedy) from None
    return context


def _read_token(path: Path) -> str:
    try:
        text = read_content(path).decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise UserError(f"{path}: holds no token", "give a file with one JWT in it, and nothing else")
    return text


def _parse_decision(half: Half, answer: bytes, url: str) -> Decision:
    try:
        response = msgspec.json.decode(answer, type=_AdmissionReview).response
        patch = Patch(msgspec.json.decode(response.patch, type=tuple[PatchOperation, ...]))
        for operation in patch:
            bound_depth(operation.value)
        annotations = response.audit_annotations
        verdict = Verdict(annotations["decision"])
    except (*UNREADABLE_JSON, KeyError, ValueError):
        raise ReviewServerError(f"{url} answers, but not as Podgate does", "give the URL of podgate serve") from None
    status = ALLOWED if response.allowed else ResponseStatus(**msgspec.structs.asdict(response.status))
    ignored = {"decision", "client-id"}
    return Decision(
        half=half,
        review_uid=response.uid,
        verdict=verdict,
        service=annotations.get("service"),
        policy_hash=annotations.get("policy-hash", ""),
        deviation=Deviation(
            annotations.get("exemption", ""),
            annotations.get("degraded", ""),
            overload=annotations.get("overload", ""),
        ),
        depends_on=tuple(
            Dependence.parse(dependence) for dependence in annotations.get("depends-on", "").split(",") if dependence
        ),
        status=status,
        warnings=response.warnings,
        patch=patch,
        audit=annotations,
        inputs=DecisionInputs(slot=_parse_slot(annotations)),
        steps=tuple(StageNote("server", f"{key}: {value}") for key, value in annotations.items() if key not in ignored),
    )


def _parse_slot(annotations: Mapping[str, str]) -> PodSlot | None:
    """Return the slot of a Pod; None if the server's policy divides no such Pods."""
    number, variant = annotations.get("slot", ""), annotations.get("variant", "")
    if not number.isdecimal() or not variant:
        return None
    return PodSlot(int(number), variant, annotations.get("intended-variant", variant))
