"""An internal error affects one answer: counted, logged, and without details in the response."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import HttpVersion11
from multidict import CIMultiDict, CIMultiDictProxy

from tests.harness.loopback import loopback
from tests.timeouts import HANG_SECONDS
from webhook.authentication.authenticator import VerifiedToken
from webhook.authentication.peer_recheck import Peer, TrustedCas
from webhook.authentication.strategies import AuthenticatedCall
from webhook.core.admission.decision import Half
from webhook.errors import AuthenticationError
from webhook.outcomes.endpoint import TooManyReportsError
from webhook.ports import Caller
from webhook.server.call_endpoint import CallEndpoint, CallLimits
from webhook.server.http_messages import NO_CONTENT, Body, HttpRequest, RequestConnection, RequestHead
from webhook.server.routes import build_admission_routes
from webhook.support.call_thread import CallThread

SECRET = "the-password-of-the-store"
CALLER = Caller("apiserver", "cluster-1", "issuer", "subject", "kube-apiserver")
REPORTER = Caller("reporter", "edge", "issuer", "subject", "edge")
JSON = {"Content-Type": "application/json"}


class FailingInterceptor:
    """An interceptor that fails for every body but `well`."""

    async def review(self, half: Half, body: bytes, *_: object) -> Any:
        if body == b"well":
            return type("Answer", (), {"body": b"{}"})
        raise LookupError(f"{half}: {SECRET}")


class SlowService:
    """A receiver of reports and reviewer of policies that answers only when allowed."""

    def __init__(self) -> None:
        self.was_called, self.may_answer = asyncio.Event(), asyncio.Event()

    async def receive(self, body: bytes, _caller: Caller) -> bytes:
        return await self.review(body)

    async def review(self, _body: bytes) -> bytes:
        self.was_called.set()
        await self.may_answer.wait()
        return b"{}"


class AcceptAll:
    """A strategy that accepts every caller."""

    def authenticate(self, _certificate: bytes | None, _headers: object, path: str) -> AuthenticatedCall:
        return AuthenticatedCall(REPORTER if path == "/v1/outcomes" else CALLER, path)


class Guard:
    def record_request(self, _transport: asyncio.BaseTransport | None) -> bool:
        return True

    def check_peer(self, peer: Peer) -> tuple[TrustedCas, float]:
        raise AssertionError(peer)

    def mark_trusted(self, _transport: asyncio.BaseTransport | None) -> None: ...


class RefusalLog:
    def __init__(self) -> None:
        self.refused_calls: list[tuple[str, str]] = []

    def on_refused(self, reason: str, detail: str) -> None:
        self.refused_calls.append((reason, detail))


def endpoint_of(parts: list[Any]) -> CallEndpoint:
    """Return an endpoint with the routes to interceptor, policies and outcomes, which are the first three parts."""
    return CallEndpoint(build_admission_routes(*parts[:3]), *parts[3:])


@asynccontextmanager
async def serve_posts(endpoint: CallEndpoint) -> AsyncIterator[Callable[[str], Awaitable[tuple[int, str]]]]:
    """Serve the endpoint; yield a function that posts a good body to a path and returns status and text."""
    async with loopback(endpoint.answer, None) as running, aiohttp.ClientSession() as session:

        async def post(path: str) -> tuple[int, str]:
            url = f"http://127.0.0.1:{running.port}{path}"
            async with asyncio.timeout(HANG_SECONDS), session.post(url, data=b"well", headers=JSON) as response:
                return response.status, await response.text()

        yield post


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_defect_is_a_counted_500_without_details_and_the_next_call_works(path: str) -> None:
    reported = RefusalLog()
    limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=1)
    parts: list[Any] = [
        FailingInterceptor(),
        None,
        None,
        AcceptAll(),
        Guard(),
        reported,
        limits,
    ]  # with the methods that this test needs
    endpoint = endpoint_of(parts)
    async with loopback(endpoint.answer, None) as running, aiohttp.ClientSession() as session:
        for body, expected in ((b"ill", (500, "internal server error\n")), (b"well", (200, "{}"))):
            url = f"http://127.0.0.1:{running.port}{path}"
            async with session.post(url, data=body, headers=JSON) as response:
                assert (response.status, await response.text()) == expected
    [(reason, detail)] = reported.refused_calls
    assert reason == "internal_error"
    # The message is omitted: it may quote the request.
    assert re.fullmatch(rf"LookupError in review, line \d+ of {re.escape(Path(__file__).name)}", detail)
    assert endpoint.in_flight == 0


async def test_over_the_limit_in_flight_a_call_counts_503_and_the_next_one_works() -> None:
    reported, slow = RefusalLog(), SlowService()
    limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=1)
    parts: list[Any] = [FailingInterceptor(), slow, None, AcceptAll(), Guard(), reported, limits]
    endpoint = endpoint_of(parts)
    async with serve_posts(endpoint) as post:
        reviewing = asyncio.create_task(post("/validate-policy"))
        await slow.was_called.wait()
        second = await post("/validate")
        slow.may_answer.set()
        assert (second, await reviewing) == ((503, "too many reviews in flight\n"), (200, "{}"))
        assert await post("/validate") == (200, "{}")
    assert [reason for reason, _ in reported.refused_calls] == ["overloaded"]


async def test_slow_reports_are_bounded_and_leave_room_for_reviews() -> None:
    reported, slow = RefusalLog(), SlowService()
    limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=4)
    parts: list[Any] = [FailingInterceptor(), None, slow, AcceptAll(), Guard(), reported, limits]
    endpoint = endpoint_of(parts)
    async with serve_posts(endpoint) as post:
        reporting = asyncio.create_task(post("/v1/outcomes"))  # reports may use a quarter of the four calls
        await slow.was_called.wait()
        assert await post("/v1/outcomes") == (503, "too many reports in flight\n")
        assert await post("/validate") == (200, "{}")
        slow.may_answer.set()
        assert await reporting == (200, "{}")
    assert [reason for reason, _ in reported.refused_calls] == ["reporters_overloaded"]


async def test_full_report_queue_answers_503_and_reviews_continue() -> None:
    class Full:
        async def receive(self, _body: bytes, _caller: Caller) -> bytes:
            raise TooManyReportsError("too many reports in flight")

    reported = RefusalLog()
    limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=4)
    parts: list[Any] = [FailingInterceptor(), None, Full(), AcceptAll(), Guard(), reported, limits]
    async with serve_posts(endpoint_of(parts)) as post:
        assert await post("/v1/outcomes") == (503, "too many reports in flight\n")
        assert await post("/validate") == (200, "{}")
    assert [reason for reason, _ in reported.refused_calls] == ["reporters_overloaded"]


class CountingStrategy(AcceptAll):
    """A strategy whose calls may be remembered as long as they hold."""

    def __init__(self) -> None:
        self.authentications = 0
        self.holds = True

    def authenticate(self, certificate: bytes | None, headers: object, path: str) -> AuthenticatedCall:
        self.authentications += 1
        verified = VerifiedToken(CALLER, None, since_us=0, until_us=9e9, generations=(1, 1))
        return super().authenticate(certificate, headers, path)._replace(verified=verified)

    def still_holds(self, verified: VerifiedToken) -> bool:
        return self.holds and verified.until_us > 5e9


class WatchfulGuard(Guard):
    """A guard that may distrust the client of a connection."""

    def __init__(self) -> None:
        self.checked = 0
        self.cas: TrustedCas | None = TrustedCas()
        self.until_seconds = 1e9

    def trust(self) -> TrustedCas | None:
        return self.cas

    def check_peer(self, _peer: Peer) -> tuple[TrustedCas, float]:
        self.checked += 1
        if self.cas is None:
            raise AuthenticationError("certificate_untrusted", "its CA was removed")
        return self.cas, self.until_seconds


@dataclass
class KeptConnection:
    """Calls over one connection, with the headers that its parser has kept."""

    strategy: CountingStrategy
    guard: WatchfulGuard
    endpoint: CallEndpoint
    connection: RequestConnection

    @classmethod
    def create(cls) -> "KeptConnection":
        strategy, guard = CountingStrategy(), WatchfulGuard()
        limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=1)
        parts: list[Any] = [FailingInterceptor(), None, SlowService(), strategy, guard, RefusalLog(), limits]
        connection = RequestConnection(asyncio.get_running_loop())
        peer: Any = SimpleNamespace(certificate_der=b"certificate")
        connection.peer = peer
        return cls(strategy, guard, endpoint_of(parts), connection)

    async def call(self, head: RequestHead, body: bytes | None = b"well", content: Body = NO_CONTENT) -> int:
        length_bytes = 2000 if body is None else len(body)
        request = HttpRequest(self.connection, head, None, length_bytes, body, content)
        return (await self.endpoint.answer(request)).status


def head_of(path: str = "/validate", **headers: str) -> RequestHead:
    given = CIMultiDictProxy(CIMultiDict({"Content-Type": "application/json", **headers}))
    return RequestHead("POST", path, "", given, HttpVersion11, keep_alive=True)


async def test_a_repeated_header_is_authenticated_once_as_long_as_that_holds() -> None:
    kept, head = KeptConnection.create(), head_of()
    assert [await kept.call(head) for _ in range(3)] == [200] * 3
    assert (kept.strategy.authentications, kept.guard.checked) == (1, 1)
    kept.strategy.holds = False
    assert [await kept.call(head) for _ in range(2)] == [200] * 2
    assert kept.strategy.authentications == 3


async def test_a_repeated_header_is_remembered_at_most_until_the_ca_expires() -> None:
    kept, head = KeptConnection.create(), head_of()
    kept.guard.until_seconds = 1e-3  # less than the strategy wants
    assert [await kept.call(head) for _ in range(2)] == [200] * 2
    assert (kept.strategy.authentications, kept.guard.checked) == (2, 2)


async def test_a_repeated_header_is_refused_once_the_certificate_is_not_trusted() -> None:
    kept, head = KeptConnection.create(), head_of()
    assert await kept.call(head) == 200
    kept.guard.cas = None
    assert await kept.call(head) == 401
    kept.guard.cas = TrustedCas()
    assert [await kept.call(head) for _ in range(2)] == [200] * 2
    assert kept.guard.checked == 3


async def test_limits_hold_for_a_repeated_header() -> None:
    kept, head = KeptConnection.create(), head_of()
    assert await kept.call(head) == 200
    assert await kept.call(head, b"a" * 1001) == 413
    assert await kept.call(head, None, asyncio.StreamReader()) == 413  # by its length: nothing of it is read
    assert await kept.call(head, b"ill") == 500
    kept.endpoint.in_flight = 1
    assert await kept.call(head) == 503


@pytest.mark.parametrize("head", [head_of("/nowhere"), head_of(Expect="100-continue")], ids=["refused", "waits"])
async def test_only_accepted_headers_that_expect_nothing_are_remembered(head: RequestHead) -> None:
    kept = KeptConnection.create()
    for _ in range(2):
        await kept.call(head)
    assert kept.strategy.authentications == 2


class ThreadedReviews:
    """An interceptor whose reviews are one step in the thread: `blocking` keeps it until it may end."""

    def __init__(self) -> None:
        self._run = CallThread("test").run
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.reviewed: list[bytes] = []

    async def review(self, _half: Half, body: bytes, *_: object) -> Any:
        await self._run(self._step, body)
        return type("Answer", (), {"body": b"{}"})

    def _step(self, body: bytes) -> None:
        if body == b"blocking":
            self.begun.set()
            assert self.may_end.wait(HANG_SECONDS)
        self.reviewed.append(body)


async def test_a_call_whose_client_has_gone_frees_its_place_and_its_work_is_skipped() -> None:
    reported, reviews = RefusalLog(), ThreadedReviews()
    limits = CallLimits(body_bytes_max=1000, body_timeout_seconds=HANG_SECONDS, in_flight_max=3)
    parts: list[Any] = [reviews, None, None, AcceptAll(), Guard(), reported, limits]
    endpoint = endpoint_of(parts)
    async with loopback(endpoint.answer, None) as running, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{running.port}/validate"

        async def post(body: bytes) -> int:
            async with asyncio.timeout(HANG_SECONDS), session.post(url, data=body, headers=JSON) as response:
                return response.status

        first = asyncio.create_task(post(b"blocking"))
        await asyncio.to_thread(reviews.begun.wait, HANG_SECONDS)
        abandoned = [asyncio.create_task(post(b"abandoned")) for _ in range(2)]
        await running.wait_until(lambda: endpoint.in_flight == 3)
        assert await post(b"next") == 503
        for task in abandoned:
            task.cancel()
        await running.wait_until(lambda: endpoint.in_flight == 1)
        last = asyncio.create_task(post(b"next"))
        await running.wait_until(lambda: endpoint.in_flight == 2)
        reviews.may_end.set()
        assert (await first, await last) == (200, 200)
    assert reviews.reviewed == [b"blocking", b"next"]
    assert [reason for reason, _ in reported.refused_calls] == ["overloaded", "caller_gone", "caller_gone"]
