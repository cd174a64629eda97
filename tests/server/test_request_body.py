"""Slow request bodies are displaced at any point, and the names of headers are found in any case."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from multidict import CIMultiDict, CIMultiDictProxy

from webhook.authentication.identities import Role
from webhook.authentication.strategies import reject_forwarded
from webhook.errors import AuthenticationError, CallRefusedError
from webhook.server.request_body import BodyReader


class Content:
    """A body that never arrives."""

    def is_eof(self) -> bool:
        return False

    async def readany(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


class Request:
    """The attributes of a request that the reader uses."""

    headers = {"Content-Type": "application/json"}  # noqa: RUF012  read only
    content_length = None
    content = Content()


async def displace_at_timeout() -> tuple[str, bool]:
    """Displace a body between its timeout and its task's next step; return the reason and the result."""
    bodies = BodyReader(1000, 0.01)
    request: Any = Request()
    slow = asyncio.create_task(bodies.receive(request, Role.APISERVER))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    displaced: list[bool] = []
    (arrival,) = bodies._arriving

    def displace_once_expired() -> None:
        if arrival.patience.expired():
            displaced.append(bodies.displace())
        elif not slow.done():
            loop.call_soon(displace_once_expired)

    displace_once_expired()
    with pytest.raises(CallRefusedError) as refused:
        await slow
    assert not bodies._arriving
    return refused.value.reason, displaced == [True]


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_timed_out_body_is_dropped_without_effect_on_others(run: Callable[..., tuple[str, bool]]) -> None:
    assert run(displace_at_timeout()) == ("body_timeout", True)


def receive_body(*headers: tuple[str, str]) -> bytes | None:
    """Return the body of a request with these headers, which has arrived."""
    request: Any = SimpleNamespace(headers=CIMultiDictProxy(CIMultiDict(headers)), content_length=2, body=b"{}")
    bodies = BodyReader(1000, 1.0)
    bodies.check(request)
    return bodies.take_arrived(request)


@pytest.mark.parametrize("cased", [str, str.lower, str.upper])
def test_names_of_headers_are_found_in_any_case(cased: Callable[[str], str]) -> None:
    json = cased("Content-Type"), "application/json"
    assert receive_body(json) == b"{}"
    with pytest.raises(CallRefusedError, match="not encoded"):
        receive_body(json, (cased("Content-Encoding"), "gzip"))
    with pytest.raises(AuthenticationError, match="no proxy is expected"):
        reject_forwarded(CIMultiDictProxy(CIMultiDict({cased("X-Forwarded-Client-Cert"): "Hash=00"})))
