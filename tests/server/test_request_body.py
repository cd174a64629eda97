"""Slow request bodies are displaced at any point."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from webhook.authentication.identities import Role
from webhook.errors import CallRefusedError
from webhook.server.request_body import BodyReader


class Content:
    """What never comes."""

    def is_eof(self) -> bool:
        return False

    async def readany(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError


class Request:
    """As much of one as is looked at."""

    headers = {"Content-Type": "application/json"}  # noqa: RUF012  nobody writes to it
    content_length = None
    content = Content()


async def displaced_when_late() -> tuple[str, bool]:
    """Displace a body between the end of its patience and its task's next step; return how that went."""
    bodies = BodyReader(1000, 0.01)
    request: Any = Request()
    slow = asyncio.create_task(bodies.read(request, Role.APISERVER))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    made_room: list[bool] = []
    (arrival,) = bodies._arriving

    def as_soon_as_it_expires() -> None:
        if arrival.patience.expired():
            made_room.append(bodies.displace())
        elif not slow.done():
            loop.call_soon(as_soon_as_it_expires)

    as_soon_as_it_expires()
    with pytest.raises(CallRefusedError) as refused:
        await slow
    assert not bodies._arriving
    return refused.value.reason, made_room == [True]


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_timed_out_body_is_dropped_without_effect_on_others(run: Callable[..., tuple[str, bool]]) -> None:
    assert run(displaced_when_late()) == ("body_timeout", True)
