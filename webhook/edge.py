"""The admission edge: authenticate, bound what is read, hand the body to the interceptor, answer without leaking."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import HttpVersion11, web

from webhook.authentication import Authenticator, require_role
from webhook.core.decision import Half
from webhook.core.pushed import BadOutcomesError
from webhook.core.review import BadReviewError
from webhook.errors import AuthenticationError, CheckFailedError, NoPolicyError
from webhook.identities import Role
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.outcome_receiver import NotAReporterError, OutcomeReceiver
from webhook.policy_reviewer import PolicyReviewer
from webhook.ports import Caller, Observer
from webhook.protocol import Handler, JsonAnswer, close_after, closing

_METHOD = "POST"
_JSON = "application/json"
_CALLER = "client_id"
_FORWARDED_CERTIFICATE = "X-Forwarded-Client-Cert"
Retires = Callable[[asyncio.BaseTransport | None], bool]
Answering = Callable[[bytes, Caller, str | None], Awaitable[bytes]]
"""From a body, who sent it, and its traceparent to the answer's body."""

_REPORTERS_PART = 4
"""Of what may be in flight, reporters may have one part in so many: reviews always find room."""


_REFUSALS: Mapping[type[Exception], tuple[HTTPStatus, str]] = {
    BadReviewError: (HTTPStatus.BAD_REQUEST, "bad_review"),
    BadOutcomesError: (HTTPStatus.BAD_REQUEST, "bad_outcomes"),
    NotAReporterError: (HTTPStatus.FORBIDDEN, "not_a_reporter"),
    NoPolicyError: (HTTPStatus.SERVICE_UNAVAILABLE, "no_policy"),
    UnknownNamespaceError: (HTTPStatus.SERVICE_UNAVAILABLE, "namespace_unknown"),
    CheckFailedError: (HTTPStatus.SERVICE_UNAVAILABLE, "policy_unchecked"),
}
"""What a route may raise, and what its caller and our metric hear then."""


class Route(NamedTuple):
    """What answers at one path, and who may ask for it."""

    role: Role
    answer: Answering


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call, and all of them together, may take."""

    max_body_bytes: int
    body_timeout_seconds: float
    max_in_flight: int


class RefusedError(Exception):
    """A call ends here, with an HTTP status and a text that tells its sender nothing that it did not send itself."""

    def __init__(self, status: HTTPStatus, reason: str, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.detail = detail or text


class AdmissionEdge:
    """`/mutate`, `/validate`, `/validate-policy` for the API server, `/v1/outcomes` for reporters.

    To the API server an answer that is not 2xx leaves the decision to the entry's failurePolicy.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        policies: PolicyReviewer,
        outcomes: OutcomeReceiver,
        authenticator: Authenticator,
        observer: Observer,
        limits: Limits,
    ) -> None:
        self._interceptor = interceptor
        self._routes: dict[str, Route] = {
            "/mutate": Route(Role.APISERVER, partial(self._review, Half.MUTATE)),
            "/validate": Route(Role.APISERVER, partial(self._review, Half.VALIDATE)),
            "/validate-policy": Route(Role.APISERVER, lambda body, *_: policies.review(body)),
            "/v1/outcomes": Route(Role.REPORTER, lambda body, caller, _: outcomes.receive(body, caller)),
        }
        self._authenticator = authenticator
        self._observer = observer
        self._limits = limits
        self._retires: Retires = lambda _: False
        self.in_flight = 0
        self._reporting = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def body_max_bytes(self) -> int:
        return self._limits.max_body_bytes

    def handler(self, retires: Retires) -> Handler:
        """Return the handler; `retires` is told of each request's connection, and says whether to end it."""
        self._retires = retires
        return self._handle

    async def wait_idle(self) -> None:
        """Wait until no call is being answered."""
        await self._idle.wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.in_flight += 1
        self._idle.clear()
        ends = self._retires(request.transport)
        try:
            response = await self._answer(request)
        except AuthenticationError as error:
            self._observer.refused(f"authentication_{error.reason}", error.detail)
            return closing(HTTPStatus(error.status))
        except RefusedError as error:
            self._observer.refused(error.reason, f"{error.detail}{_asked_by(request)}")
            return closing(error.status, error.text)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one answer, never the process
            self._observer.refused("internal_error", _whereabouts(error))
            return closing(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
        if ends:
            close_after(response)
        return response

    async def _answer(self, request: web.BaseRequest) -> JsonAnswer:
        caller, route = self._authenticate(request)
        if self.in_flight > self._limits.max_in_flight:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many reviews in flight")
        if route.role is not Role.REPORTER:
            return await self._ask(request, caller, route)
        if self._reporting >= max(1, self._limits.max_in_flight // _REPORTERS_PART):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded", "too many reports in flight")
        self._reporting += 1
        try:
            return await self._ask(request, caller, route)
        finally:
            self._reporting -= 1

    async def _ask(self, request: web.BaseRequest, caller: Caller, route: Route) -> JsonAnswer:
        body = await self._body(request)
        try:
            return JsonAnswer(await route.answer(body, caller, request.headers.get("traceparent")))
        except tuple(_REFUSALS) as error:
            status, reason = _REFUSALS[type(error)]
            raise RefusedError(status, reason, str(error)) from None

    async def _review(self, half: Half, body: bytes, caller: Caller, traceparent: str | None) -> bytes:
        return (await self._interceptor.review(half, body, caller, traceparent)).body

    def _authenticate(self, request: web.BaseRequest) -> tuple[Caller, Route]:
        """Know the caller before a byte of the body is read, and before saying which paths there are."""
        headers = request.headers
        if _FORWARDED_CERTIFICATE in headers:
            detail = f"{_FORWARDED_CERTIFICATE} was sent, and no proxy is expected here"
            raise RefusedError(HTTPStatus.FORBIDDEN, "forwarded_certificate", "", detail)
        tls = request.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        caller = self._authenticator.authenticate(certificate, headers.getall("Authorization", []))
        request[_CALLER] = caller.client_id
        route = self._routes.get(request.path)
        if route is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "not_found", "", "no such path")
        require_role(caller, route.role)
        if request.method != _METHOD:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", "", "not a POST")
        return caller, route

    async def _body(self, request: web.BaseRequest) -> bytes:
        if not _is_plain_json(request):
            text = "send application/json, not encoded"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", text)
        limit = self._limits.max_body_bytes
        if (request.content_length or 0) > limit:
            raise _too_large(limit)
        if "Expect" in request.headers:
            await _want_body(request)
        if not request.content.is_eof():
            return await self._arriving(request)
        # All of it is here already, as is usual: there is nothing to wait for.
        body = request.content.read_nowait()
        if len(body) > limit:
            raise _too_large(limit)
        return body

    async def _arriving(self, request: web.BaseRequest) -> bytes:
        try:
            async with asyncio.timeout(self._limits.body_timeout_seconds):
                return await request.read()
        except TimeoutError:
            text = f"the body took longer than {self._limits.body_timeout_seconds:g}s"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", text) from None
        except web.HTTPRequestEntityTooLarge:
            raise _too_large(self._limits.max_body_bytes) from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "body_broken", "the body ended early", repr(error)) from None


def _too_large(limit_bytes: int) -> RefusedError:
    text = f"the body is larger than {limit_bytes} bytes"
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", text)


def _is_plain_json(request: web.BaseRequest) -> bool:
    headers = request.headers
    if "Content-Encoding" in headers:
        return False
    return headers.get("Content-Type") == _JSON or request.content_type == _JSON


def _asked_by(request: web.BaseRequest) -> str:
    """Say for our log who asked, where that is known by now."""
    return f", asked by {request[_CALLER]!r}" if _CALLER in request else ""


async def _want_body(request: web.BaseRequest) -> None:
    """Ask for the body of a caller that waits to be asked: only now, when it is known."""
    if request.version < HttpVersion11:
        return
    if request.headers["Expect"].lower() != "100-continue":
        raise RefusedError(HTTPStatus.EXPECTATION_FAILED, "expectation", "")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer has not begun


def _whereabouts(error: Exception) -> str:
    """Say what happened and where, in one line, for our log alone."""
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{error!r} in {last.name}, line {last.lineno}" if last else repr(error)
