"""The admission edge: authenticate, bound what is read, hand the body to the interceptor, answer without leaking."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from webhook.authentication import Authenticator, require_role
from webhook.core.decision import Half
from webhook.core.review import BadReviewError
from webhook.errors import AuthenticationError
from webhook.identities import Role
from webhook.interceptor import Interceptor, NoPolicyError
from webhook.ports import Caller, Observer

_HALVES = {"/mutate": Half.MUTATE, "/validate": Half.VALIDATE}
Retires = Callable[[asyncio.BaseTransport | None], bool]


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
    """`/mutate` and `/validate`. Non-2xx answers leave the decision to the webhook configuration's failurePolicy."""

    def __init__(
        self, interceptor: Interceptor, authenticator: Authenticator, observer: Observer, limits: Limits
    ) -> None:
        self._interceptor = interceptor
        self._authenticator = authenticator
        self._observer = observer
        self._limits = limits
        self._retires: Retires = lambda _: False
        self.in_flight = 0

    def application(self, retires: Retires) -> web.Application:
        """Return the application; `retires` is told of each request's connection, and says whether to end it."""
        self._retires = retires
        application = web.Application(client_max_size=self._limits.max_body_bytes)
        for path in _HALVES:
            application.router.add_post(path, self._handle)
        application.on_response_prepare.append(_say_less)
        return application

    async def _handle(self, request: web.Request) -> web.Response:
        self.in_flight += 1
        ends = self._retires(request.transport)
        try:
            response = await self._answer(request)
        except AuthenticationError as error:
            self._observer.refused(f"authentication_{error.reason}", error.detail)
            return _closing(HTTPStatus(error.status), HTTPStatus(error.status).phrase.lower())
        except RefusedError as error:
            self._observer.refused(error.reason, error.detail)
            return _closing(error.status, error.text)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one answer, never the process
            self._observer.refused("internal_error", repr(error))
            return _closing(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")
        finally:
            self.in_flight -= 1
        if ends:
            close_after(response)
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        caller = self._authenticate(request)
        if self.in_flight > self._limits.max_in_flight:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many reviews in flight")
        body = await self._body(request)
        try:
            answer = await self._interceptor.review(
                _HALVES[request.path], body, caller, request.headers.get("traceparent")
            )
        except BadReviewError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "bad_review", str(error)) from None
        except NoPolicyError as error:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "no_policy", str(error)) from None
        return web.Response(body=answer.body, content_type="application/json")

    def _authenticate(self, request: web.Request) -> Caller:
        """Know the caller before a byte of the body is read."""
        tls = request.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        caller = self._authenticator.authenticate(certificate, request.headers.getall("Authorization", []))
        require_role(caller, Role.APISERVER)
        return caller

    async def _body(self, request: web.Request) -> bytes:
        limit = self._limits.max_body_bytes
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            text = "send an AdmissionReview as application/json, not encoded"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", text)
        too_large = RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", f"the body is larger than {limit} bytes"
        )
        if (request.content_length or 0) > limit:
            raise too_large
        try:
            async with asyncio.timeout(self._limits.body_timeout_seconds):
                return await request.read()
        except TimeoutError:
            text = f"the body took longer than {self._limits.body_timeout_seconds:g}s"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", text) from None
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        except (ConnectionError, web.RequestPayloadError) as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "body_broken", "the body ended early", repr(error)) from None


async def _say_less(_request: web.Request, response: web.StreamResponse) -> None:
    """Do not tell strangers what the server is made of."""
    response.headers.pop("Server", None)


def _closing(status: HTTPStatus, text: str) -> web.Response:
    """Answer a call that went wrong, and end its connection: an unread body must not become the next request."""
    response = web.Response(status=status, text=f"{text}\n")
    close_after(response)
    return response


def close_after(response: web.StreamResponse) -> None:
    """End the connection after this answer, and say so to the caller."""
    response.headers["Connection"] = "close"
    response.force_close()
