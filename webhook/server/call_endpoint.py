"""Call endpoint: authenticates a call, reads its body within limits, and routes it. Errors reveal nothing."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePath
from typing import NamedTuple, Protocol

from msgspec import Struct

from webhook.authentication.authenticator import Verified, require_role
from webhook.authentication.identities import Role
from webhook.authentication.strategies import AuthenticationStrategy
from webhook.authentication.tokens.jwt import KeyNotFoundError
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.outcomes.report import BadOutcomesError
from webhook.core.scheduling.extender_api import BadExtenderRequestError
from webhook.errors import AuthenticationError, CallRefusedError, CheckFailedError, NoPolicyError
from webhook.interceptor import UnknownNamespaceError
from webhook.outcomes.endpoint import NotAReporterError, TooManyReportsError
from webhook.ports import Caller, Observer
from webhook.server.connection_guard import ConnectionGuard
from webhook.server.http_messages import JSON, HttpRequest, HttpResponse, closing_response
from webhook.server.request_body import BodyReader, expects

_METHOD = "POST"
_OK = HTTPStatus.OK


class Answered(Protocol):
    """An answer with the body of its response."""

    @property
    def body(self) -> bytes: ...


class Encoded(NamedTuple):
    """An answer of which nothing else is needed."""

    body: bytes


Answering = Callable[[bytes, Caller, str | None], Awaitable[Answered]]
"""From the request body, its caller and the traceparent to the answer."""

_REPORTERS_PART = 4
"""Reports may take one part in this many of the calls in flight: the rest is for reviews."""


_REFUSALS: Mapping[type[Exception], tuple[HTTPStatus, str]] = {
    BadReviewError: (HTTPStatus.BAD_REQUEST, "bad_review"),
    BadOutcomesError: (HTTPStatus.BAD_REQUEST, "bad_outcomes"),
    BadExtenderRequestError: (HTTPStatus.BAD_REQUEST, "bad_extender_request"),
    NotAReporterError: (HTTPStatus.FORBIDDEN, "not_a_reporter"),
    TooManyReportsError: (HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded"),
    NoPolicyError: (HTTPStatus.SERVICE_UNAVAILABLE, "no_policy"),
    UnknownNamespaceError: (HTTPStatus.SERVICE_UNAVAILABLE, "namespace_unknown"),
    CheckFailedError: (HTTPStatus.SERVICE_UNAVAILABLE, "policy_unchecked"),
}
"""Exceptions that a route may raise, with their status and the reason in the metric."""


class Route(NamedTuple):
    """The handler of one path, and the role that may call it."""

    role: Role
    answer: Answering


class _Call(Struct, frozen=True):
    """An accepted call. It is remembered with its header: a repeated one need not be authenticated and routed anew."""

    caller: Caller
    verified: Verified | None
    route: Route
    is_report: bool


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one call, and of all calls together."""

    max_body_bytes: int
    body_timeout_seconds: float
    max_in_flight: int


class CallEndpoint:
    """Calls to a table of routes. On any other status than 2xx the caller applies its rule for failures."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        strategy: AuthenticationStrategy,
        guard: ConnectionGuard,
        observer: Observer,
        limits: CallLimits,
    ) -> None:
        self._routes = routes
        self._strategy = strategy
        self._guard = guard
        self._observer = observer
        self._limits = limits
        self._bodies = BodyReader(limits.max_body_bytes, limits.body_timeout_seconds)
        self.in_flight = 0
        self._authenticated = 0  # only these are limited: a flood of unauthenticated calls does not displace them
        self._reporting = 0
        self._idle: asyncio.Event | None = None
        """Made for those who wait: to clear and set it at each call would cost 0.5 us."""

    async def wait_idle(self) -> None:
        """Wait until no call is being answered."""
        while self.in_flight:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer one HTTP request."""
        admitted: _Call | None = None
        self.in_flight += 1
        is_last = self._guard.record_request(request.connection.transport)
        try:
            known = self._known(request)
            call = known or await self._identify(request)
            self._check_room(call)
            admitted = call
            self._authenticated += 1
            self._reporting += call.is_report
            if known is None:
                self._bodies.check(request)
            body = self._bodies.arrived(request)
            if body is None:
                body = await self._bodies.arrive(request, call.route.role)
            if known is None:
                self._accept(request, call)
            answer = await call.route.answer(body, call.caller, request.traceparent)
            return HttpResponse(_OK, answer.body, JSON, is_last)
        except Exception as error:  # noqa: BLE001  a defect must cost one call, never the process
            return self._refuse(request, error)
        finally:
            self.in_flight -= 1
            if admitted is not None:
                self._authenticated -= 1
                self._reporting -= admitted.is_report
            if self._idle is not None and not self.in_flight:
                self._idle.set()
                self._idle = None

    def _known(self, request: HttpRequest) -> _Call | None:
        """Return the call as it was accepted before on this connection, if nothing has changed since.

        AuthenticationError: the certificate of the connection is no longer trusted.
        """
        call, peer = request.head.known, request.connection.peer
        if not isinstance(call, _Call) or call.verified is None or peer is None:
            return None
        self._guard.check_peer(peer)
        request.client_id = call.caller.client_id
        return call if self._strategy.still_holds(call.verified) else None

    async def _identify(self, request: HttpRequest) -> _Call:
        try:
            return self._authenticate(request)
        except KeyNotFoundError:
            if not await self._strategy.refetch_keys():
                raise
            return self._authenticate(request)

    def _authenticate(self, request: HttpRequest) -> _Call:
        """Return caller and route, before any of the body is read, and before revealing which paths exist."""
        peer = request.peer
        certificate = peer.certificate_der if peer is not None else None
        if peer is not None and certificate is not None:  # reduced mode asks for none
            self._guard.check_peer(peer)
        caller, path, verified = self._strategy.authenticate(certificate, request.headers, request.path)
        request.client_id = caller.client_id
        route = self._routes.get(path)
        if route is None:
            raise CallRefusedError(HTTPStatus.NOT_FOUND, "not_found", "", "no such path")
        require_role(caller, route.role)
        if request.method != _METHOD:
            raise CallRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", "", "not a POST")
        return _Call(caller, verified, route, route.role is Role.REPORTER)

    def _accept(self, request: HttpRequest, call: _Call) -> None:
        """Trust the connection of an authenticated call that has arrived whole, and remember the call."""
        if not call.is_report:
            self._guard.mark_trusted(request.transport)
        if not expects(request):
            request.head.known = call

    def _check_room(self, call: _Call) -> None:
        """Refuse a call above the limits, unless it displaces one whose body is incomplete."""
        calls_max = self._limits.max_in_flight
        if self._authenticated >= calls_max and not self._bodies.displace():
            raise CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many reviews in flight")
        if not call.is_report:
            return
        if self._reporting >= max(1, calls_max // _REPORTERS_PART) and not self._bodies.displace(Role.REPORTER):
            raise CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded", "too many reports in flight")

    def _refuse(self, request: HttpRequest, error: Exception) -> HttpResponse:
        """Report why a call is not answered, and return the response, which reveals nothing."""
        if isinstance(error, AuthenticationError):
            self._observer.refused(f"authentication_{error.reason}", error.detail)
            return closing_response(HTTPStatus(error.status))
        refusal = _REFUSALS.get(type(error))
        if refusal is not None:
            error = CallRefusedError(*refusal, str(error))
        if isinstance(error, CallRefusedError):
            self._observer.refused(error.reason, f"{error.detail}{_caller_suffix(request)}")
            return closing_response(error.status, error.text)
        self._observer.refused("internal_error", _location_of(error))
        return closing_response(HTTPStatus.INTERNAL_SERVER_ERROR)


def _caller_suffix(request: HttpRequest) -> str:
    """Return the caller for the log, once it is authenticated."""
    return "" if request.client_id is None else f", asked by {request.client_id!r}"


def _location_of(error: Exception) -> str:
    """Return an error's type and place for the log; its message may quote what a caller sent."""
    name = type(error).__name__
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{name} in {last.name}, line {last.lineno} of {PurePath(last.filename).name}" if last else name
