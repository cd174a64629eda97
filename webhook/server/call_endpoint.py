"""Call endpoint: authenticates a call, reads its body within limits, and routes it. Errors reveal nothing."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePath
from typing import NamedTuple, Protocol

from msgspec import Struct

from webhook.authentication.authenticator import VerifiedToken, require_role
from webhook.authentication.identities import Role
from webhook.authentication.jwt import KeyNotFoundError
from webhook.authentication.peer_recheck import TrustedCas
from webhook.authentication.strategies import AuthenticationStrategy
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.outcomes import BadOutcomesError
from webhook.core.scheduling.extender_api import BadExtenderRequestError
from webhook.errors import AuthenticationError, CallRefusedError, CheckFailedError, NoPolicyError
from webhook.interceptor import UnknownNamespaceError
from webhook.outcomes.endpoint import NotAReporterError, TooManyReportsError
from webhook.ports import Caller, Observer
from webhook.server.connection_table import ConnectionGuard
from webhook.server.http_messages import JSON, HttpRequest, HttpResponse, build_closing_response
from webhook.server.request_body import BodyReader, expects_continue
from webhook.support.call_thread import CallerGoneError

_METHOD = "POST"
_OK = HTTPStatus.OK


class RouteAnswer(Protocol):
    """An answer with the body of its response."""

    @property
    def body(self) -> bytes: ...


class EncodedAnswer(NamedTuple):
    """An answer that has a body only."""

    body: bytes


AnswerCall = Callable[[bytes, Caller, str | None], Awaitable[RouteAnswer]]
"""Returns the answer to a call, from its body, its caller and its traceparent."""

_REPORTERS_PART = 4
"""Reports may take one in this many of the calls in flight: the rest is reserved for reviews."""


_REFUSALS: Mapping[type[Exception], tuple[HTTPStatus, str]] = {
    BadReviewError: (HTTPStatus.BAD_REQUEST, "bad_review"),
    BadOutcomesError: (HTTPStatus.BAD_REQUEST, "bad_outcomes"),
    BadExtenderRequestError: (HTTPStatus.BAD_REQUEST, "bad_extender_request"),
    NotAReporterError: (HTTPStatus.FORBIDDEN, "not_a_reporter"),
    TooManyReportsError: (HTTPStatus.SERVICE_UNAVAILABLE, "reporters_overloaded"),
    NoPolicyError: (HTTPStatus.SERVICE_UNAVAILABLE, "no_policy"),
    UnknownNamespaceError: (HTTPStatus.SERVICE_UNAVAILABLE, "namespace_unknown"),
    CallerGoneError: (HTTPStatus.SERVICE_UNAVAILABLE, "caller_gone"),
    CheckFailedError: (HTTPStatus.SERVICE_UNAVAILABLE, "policy_unchecked"),
}
"""Exceptions that a route may raise, with their status and the reason in the metric; subclasses have the same."""


class Route(NamedTuple):
    """The handler of one path, and the role that may call it."""

    role: Role
    answer: AnswerCall


class _Call(Struct, frozen=True):
    """An accepted call. It is remembered with its header: a repeated one need not be authenticated and routed anew."""

    caller: Caller
    role: Role
    answer: AnswerCall
    verified: VerifiedToken | None
    """None: the call is not remembered."""
    trust: TrustedCas | None
    """The client CAs by which the connection is trusted; None for a connection without a client certificate."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one call, and of all calls together."""

    body_bytes_max: int
    body_timeout_seconds: float
    in_flight_max: int


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
        self._bodies = BodyReader(limits.body_bytes_max, limits.body_timeout_seconds)
        self.in_flight = 0
        self._unidentified = 0  # not limited: a flood of unauthenticated calls does not displace authenticated ones
        self._reporting = 0
        self._reports_max = max(1, limits.in_flight_max // _REPORTERS_PART)
        self._idle: asyncio.Event | None = None
        """Made by the first waiter, so that calls need not set it while nobody waits."""

    async def wait_idle(self) -> None:
        """Wait until no call is being answered."""
        while self.in_flight:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one HTTP request."""
        self.in_flight += 1
        is_report = False
        stays = self._guard.record_request(request.connection.transport)
        try:
            known = self._recall(request)
            call = known or await self._identify(request)
            if self.in_flight - self._unidentified > self._limits.in_flight_max:
                self._make_room(None, "overloaded", "too many reviews in flight")
            if call.role is Role.REPORTER:
                if self._reporting >= self._reports_max:
                    self._make_room(Role.REPORTER, "reporters_overloaded", "too many reports in flight")
                is_report = True
                self._reporting += 1
            if known is None:
                self._bodies.check(request)
            body = self._bodies.take_arrived(request)
            if body is None:
                body = await self._bodies.receive(request, call.role)
            if known is None:
                self._remember(request, call)
            answer = await call.answer(body, call.caller, request.traceparent)
            return HttpResponse(_OK, answer.body, JSON, not stays)
        except Exception as error:  # noqa: BLE001  a defect must cost one call, never the process
            return self._refuse(request, error)
        finally:
            self.in_flight -= 1
            if is_report:
                self._reporting -= 1
            if self._idle is not None and not self.in_flight:
                self._idle.set()
                self._idle = None

    def _recall(self, request: HttpRequest) -> _Call | None:
        """Return the call as it was accepted before on this connection; None if anything has changed since."""
        call: _Call | None = request.head.known
        if call is None or call.trust is not self._guard.trust():
            return None
        if call.verified is None or not self._strategy.still_holds(call.verified):
            return None
        request.client_id = call.caller.client_id
        return call

    async def _identify(self, request: HttpRequest) -> _Call:
        self._unidentified += 1
        try:
            return self._authenticate(request)
        except KeyNotFoundError:
            if not await self._strategy.refetch_keys():
                raise
            return self._authenticate(request)
        finally:
            self._unidentified -= 1

    def _authenticate(self, request: HttpRequest) -> _Call:
        """Return caller and route, before any of the body is read, and before revealing which paths exist."""
        peer, trust, until_seconds = request.peer, None, 0.0
        certificate = None if peer is None else peer.certificate_der
        if peer is not None and certificate is not None:  # reduced mode asks for none
            trust, until_seconds = self._guard.check_peer(peer)
        caller, path, verified = self._strategy.authenticate(certificate, request.headers, request.path)
        request.client_id = caller.client_id
        route = self._routes.get(path)
        if route is None:
            raise CallRefusedError(HTTPStatus.NOT_FOUND, "not_found", "", "no such path")
        require_role(caller, route.role)
        if request.method != _METHOD:
            raise CallRefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "method", "", "not a POST")
        known = None if verified is None else verified.limit_until(until_seconds)
        return _Call(caller, route.role, route.answer, known, trust)

    def _remember(self, request: HttpRequest, call: _Call) -> None:
        """Trust the connection of an authenticated call that has arrived whole, and remember the call."""
        if call.role is not Role.REPORTER:
            self._guard.mark_trusted(request.transport)
        if call.verified is not None and not expects_continue(request):
            request.head.known = call

    def _make_room(self, role: Role | None, reason: str, text: str) -> None:
        """Make room for one more call (of a role) in place of one whose body is incomplete, or refuse it."""
        if not self._bodies.displace(role):
            raise CallRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, reason, text)

    def _refuse(self, request: HttpRequest, error: Exception) -> HttpResponse:
        """Report why a call is not answered, and return the response, which reveals nothing."""
        if isinstance(error, AuthenticationError):
            self._observer.on_refused(f"authentication_{error.reason}", error.detail)
            return build_closing_response(HTTPStatus(error.status))
        refusal = next((_REFUSALS[kind] for kind in type(error).__mro__ if kind in _REFUSALS), None)
        if refusal is not None:
            error = CallRefusedError(*refusal, str(error))
        if isinstance(error, CallRefusedError):
            self._observer.on_refused(error.reason, f"{error.detail}{_format_caller(request)}")
            return build_closing_response(error.status, error.text)
        self._observer.on_refused("internal_error", _describe_location(error))
        return build_closing_response(HTTPStatus.INTERNAL_SERVER_ERROR)


def _format_caller(request: HttpRequest) -> str:
    """Return the caller for the log, once it is authenticated."""
    return "" if request.client_id is None else f", asked by {request.client_id!r}"


def _describe_location(error: Exception) -> str:
    """Return an error's type and place for the log; its message may quote what a caller sent."""
    name = type(error).__name__
    *_, last = traceback.extract_tb(error.__traceback__) or [None]
    return f"{name} in {last.name}, line {last.lineno} of {PurePath(last.filename).name}" if last else name
