"""The admission edge: authenticate, bound what is read, hand the body to the interceptor, answer without leaking."""

import asyncio
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import PurePath
from typing import NamedTuple, Protocol

from aiohttp import web

from webhook.authentication.authenticator import require_role
from webhook.authentication.identities import Role
from webhook.authentication.strategies import AuthenticationStrategy
from webhook.core.admission.decision import Half
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.outcomes.report import BadOutcomesError
from webhook.errors import AuthenticationError, CallRefusedError, CheckFailedError, NoPolicyError
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.outcomes.endpoint import NotAReporterError, OutcomeEndpoint, TooManyReportsError
from webhook.policy.policy_webhook import PolicyWebhook
from webhook.ports import Caller, Observer
from webhook.server.http1 import Handler, JsonResponse, close_after, closing_response
from webhook.server.request_body import BodyReader

_METHOD = "POST"
_CALLER = web.RequestKey("client_id", str)
Answering = Callable[[bytes, Caller, str | None], Awaitable[bytes]]
"""From a body, who sent it, and its traceparent to the answer's body."""

_REPORTERS_PART = 4
"""Of what may be in flight, reporters may have one part in so many: reviews always find room."""


_REFUSALS: Mapping[type[Exception], tuple[HTTPStatus, str]] = {
    BadReviewError: (HTTPStatus.BAD_REQUEST, "bad_review"),
    BadOutcomesError: (HTTPStatus.BAD_REQUEST, "bad_outcomes"),
    NotAReporterError: (HTTPStatus.FORBIDDEN, "not_a_reporter"),
    TooManyReportsError: (HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded"),
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
class CallLimits:
    """What one call, and all of them together, may take."""

    max_body_bytes: int
    body_timeout_seconds: float
    max_in_flight: int


class Connections(Protocol):
    """What is asked and told of the connections that calls come over."""

    def retires(self, transport: asyncio.BaseTransport | None) -> bool:
        """Take that a request has come; return whether its answer should be the last."""
        ...

    def check(self, tls: ssl.SSLObject) -> None:
        """AuthenticationError where its client would not get in today."""
        ...

    def earn(self, transport: asyncio.BaseTransport | None) -> None:
        """Let it keep its place, whoever else comes."""
        ...


class AdmissionEndpoint:
    """`/mutate`, `/validate`, `/validate-policy` for the API server, `/v1/outcomes` for reporters.

    To the API server an answer that is not 2xx leaves the decision to the entry's failurePolicy.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        policies: PolicyWebhook,
        outcomes: OutcomeEndpoint,
        door: AuthenticationStrategy,
        observer: Observer,
        limits: CallLimits,
    ) -> None:
        self._interceptor = interceptor
        self._routes: dict[str, Route] = {
            "/mutate": Route(Role.APISERVER, partial(self._review, Half.MUTATE)),
            "/validate": Route(Role.APISERVER, partial(self._review, Half.VALIDATE)),
            "/validate-policy": Route(Role.APISERVER, lambda body, *_: policies.review(body)),
            "/v1/outcomes": Route(Role.REPORTER, lambda body, caller, _: outcomes.receive(body, caller)),
        }
        self._door = door
        self._observer = observer
        self._limits = limits
        self._bodies = BodyReader(limits.max_body_bytes, limits.body_timeout_seconds)
        self.in_flight = 0
        self._known = 0  # those of them whose caller is known: a flood of strangers is not in their way
        self._reporting = 0  # those of these that are reports
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def body_max_bytes(self) -> int:
        return self._limits.max_body_bytes

    def handler(self, connections: Connections) -> Handler:
        return partial(self._handle, connections)

    async def wait_idle(self) -> None:
        """Wait until no call is being answered."""
        await self._idle.wait()

    async def _handle(self, connections: Connections, request: web.BaseRequest) -> web.StreamResponse:
        self.in_flight += 1
        self._idle.clear()
        ends = connections.retires(request.transport)
        try:
            response = await self._answer(connections, request)
        except AuthenticationError as error:
            self._observer.refused(f"authentication_{error.reason}", error.detail)
            return closing_response(HTTPStatus(error.status))
        except CallRefusedError as error:
            self._observer.refused(error.reason, f"{error.detail}{_asked_by(request)}")
            return closing_response(error.status, error.text)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one answer, never the process
            self._observer.refused("internal_error", _whereabouts(error))
            return closing_response(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
        if ends:
            close_after(response)
        return response

    async def _answer(self, connections: Connections, request: web.BaseRequest) -> JsonResponse:
        caller, route = await self._authenticate(connections, request)
        calls_max = self._limits.max_in_flight
        if self._known >= calls_max and not self._bodies.displace():
            raise CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many reviews in flight")
        is_report = route.role is Role.REPORTER
        reports_max = max(1, calls_max // _REPORTERS_PART)
        if is_report and self._reporting >= reports_max and not self._bodies.displace(Role.REPORTER):
            raise CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded", "too many reports in flight")
        self._known += 1
        self._reporting += is_report
        try:
            return await self._ask(connections, request, caller, route)
        finally:
            self._known -= 1
            self._reporting -= is_report

    async def _ask(
        self, connections: Connections, request: web.BaseRequest, caller: Caller, route: Route
    ) -> JsonResponse:
        body = await self._bodies.read(request, route.role)
        if route.role is not Role.REPORTER:
            connections.earn(request.transport)
        try:
            return JsonResponse(await route.answer(body, caller, request.headers.get("traceparent")))
        except tuple(_REFUSALS) as error:
            status, reason = _REFUSALS[type(error)]
            raise CallRefusedError(status, reason, str(error)) from None

    async def _review(self, half: Half, body: bytes, caller: Caller, traceparent: str | None) -> bytes:
        return (await self._interceptor.review(half, body, caller, traceparent)).body

    async def _authenticate(self, connections: Connections, request: web.BaseRequest) -> tuple[Caller, Route]:
        """Know the caller before a byte of the body is read, and before saying which paths there are."""
        tls = request.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        if certificate is not None:  # in reduced mode nobody is asked for one
            connections.check(tls)
        caller, path = await self._door.admit(certificate, request.headers, request.path)
        request[_CALLER] = caller.client_id
        route = self._routes.get(path)
        if route is None:
            raise CallRefusedError(HTTPStatus.NOT_FOUND, "not_found", "", "no such path")
        require_role(caller, route.role)
        if request.method != _METHOD:
            raise CallRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", "", "not a POST")
        return caller, route


def _asked_by(request: web.BaseRequest) -> str:
    """Say for our log who asked, where that is known by now."""
    return f", asked by {request[_CALLER]!r}" if _CALLER in request else ""


def _whereabouts(error: Exception) -> str:
    """Say what kind of thing happened and where, for our log alone: what an error says may hold what a caller sent."""
    name = type(error).__name__
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{name} in {last.name}, line {last.lineno} of {PurePath(last.filename).name}" if last else name
