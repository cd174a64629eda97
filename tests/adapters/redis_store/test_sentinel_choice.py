"""Which primary counts when Sentinels name several, or do not answer; with canned Sentinels."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from hiredis import Reader
from redis.exceptions import RedisError

from tests.timeouts import HANG_SECONDS
from webhook.adapters.redis_store.transport import sentinel as sentinels
from webhook.adapters.redis_store.transport import stream as streams
from webhook.adapters.redis_store.transport.credentials import CredentialSource
from webhook.adapters.redis_store.transport.sentinel import Sentinels
from webhook.ports.store_url import StoreFiles, StoreUrl

FORMER, CURRENT = "10.0.0.1", "10.0.0.2"
PORT = 6379


@dataclass(eq=False)
class CannedSentinel:
    """Names `primary` in the configuration of `epoch`, or refuses to tell it (None); its port stays."""

    epoch: int | None = 0
    primary: str = FORMER
    is_silent: bool = False
    refuses: bool = False
    port: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.leave()

    def leave(self) -> None:
        """Close all connections, and each new one."""
        self.refuses = True
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        commands = Reader()
        while not self.refuses and (chunk := await reader.read(4096)):
            commands.feed(chunk)
            while (command := commands.gets()) is not False:
                if not self.is_silent:
                    writer.write(self._answer(command[1]))
        writer.transport.abort()

    def _answer(self, subcommand: bytes) -> bytes:
        if subcommand == b"GET-MASTER-ADDR-BY-NAME":
            return encode(self.primary, str(PORT))
        if self.epoch is None:
            return b"-NOPERM this user has no permissions to run the 'sentinel|master' command\r\n"
        # As a Sentinel that leads a failover answers until all replicas follow the new primary.
        return encode("name", "main", "ip", FORMER, "port", str(PORT), "config-epoch", str(self.epoch))


def encode(*texts: str) -> bytes:
    parts = [f"*{len(texts)}", *(part for text in texts for part in (f"${len(text)}", text)), ""]
    return "\r\n".join(parts).encode()


@asynccontextmanager
async def run_group(*canned: CannedSentinel) -> AsyncIterator[Sentinels]:
    """Yield a client of these Sentinels."""
    async with AsyncExitStack() as stack:
        for one in canned:
            await stack.enter_async_context(one.run())
        url = StoreUrl.parse(f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in canned)}/main")
        asked = Sentinels(url, CredentialSource(url, StoreFiles()))
        stack.push_async_callback(asked.close)
        yield asked


def stale() -> CannedSentinel:
    return CannedSentinel(5, FORMER)


def fresh() -> CannedSentinel:
    return CannedSentinel(6, CURRENT)


def gone() -> CannedSentinel:
    return CannedSentinel(refuses=True)


def untold(primary: str) -> CannedSentinel:
    return CannedSentinel(None, primary)


@pytest.fixture(autouse=True)
def give_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no canned Sentinel seem silent on a busy machine."""
    monkeypatch.setattr(sentinels, "_SENTINEL_SECONDS", HANG_SECONDS * 10)
    monkeypatch.setattr(streams, "_ANSWER_SECONDS", HANG_SECONDS * 10)


@pytest.mark.parametrize(
    ("canned", "primary"),
    [
        ([stale(), fresh(), fresh()], CURRENT),
        ([stale(), gone(), fresh()], CURRENT),
        ([fresh(), gone(), stale()], CURRENT),
        ([stale(), fresh()], CURRENT),
        ([stale(), gone(), gone()], FORMER),
        ([stale(), stale(), fresh()], FORMER),
        ([untold(FORMER), untold(CURRENT), untold(CURRENT)], CURRENT),
        ([untold(FORMER), gone(), fresh()], CURRENT),
        ([untold(FORMER), fresh(), untold(CURRENT)], CURRENT),
    ],
    ids=[
        "one is cut off",
        "one is cut off and another one is gone",
        "in another order",
        "of two one is cut off",
        "the last one that answers",
        "one with a failover that most have not carried out",
        "without the right to the epoch most decide",
        "a known epoch precedes an unknown one",
        "a primary of two epochs has most",
    ],
)
async def test_primary_is_that_of_most_sentinels_or_of_the_newest(canned: list[CannedSentinel], primary: str) -> None:
    async with run_group(*canned) as asked:
        for _ in range(3):
            assert await asked.find_primary() == (primary, PORT)


async def test_few_sentinels_do_not_lead_back_to_a_former_primary_and_most_do() -> None:
    group = [stale(), fresh(), fresh()]
    async with run_group(*group) as asked:
        assert await asked.find_primary() == (CURRENT, PORT)
        group[1].leave()
        group[2].leave()
        for _ in range(2):
            with pytest.raises(RedisError, match=f"1 of 3 Sentinels answer, .* they name {FORMER}:{PORT}"):
                await asked.find_primary()
        group[1].epoch, group[1].primary, group[1].refuses = 0, FORMER, False  # it was set up anew
        await wait_until_heard(asked)
        assert await asked.find_primary() == (FORMER, PORT)


async def wait_until_heard(asked: Sentinels) -> None:
    """Ask until most Sentinels answer: one that was silent is not waited for."""
    while sum(one.is_silent for one in asked._sentinels) > 1:
        await asyncio.gather(*(one.ask() for one in asked._sentinels))


async def test_silent_sentinel_is_not_waited_for_when_most_answer() -> None:
    async with run_group(CannedSentinel(is_silent=True), fresh(), fresh()) as asked, asyncio.timeout(HANG_SECONDS):
        assert await asked.find_primary() == (CURRENT, PORT)


async def test_sentinels_that_are_silent_again_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinels, "_SENTINEL_SECONDS", 0.2)
    group = [CannedSentinel(is_silent=True), CannedSentinel(is_silent=True), fresh()]
    async with run_group(*group) as asked, asyncio.timeout(HANG_SECONDS):
        while not await is_found(asked):  # a busy machine may need longer to connect
            pass
        await asyncio.gather(*(one.ask() for one in asked._sentinels[:2]))
        assert [one.is_silent for one in asked._sentinels] == [True, True, False]
        monkeypatch.setattr(sentinels, "_SENTINEL_SECONDS", HANG_SECONDS * 10)
        assert await asked.find_primary() == (CURRENT, PORT)


async def test_sentinels_that_were_silent_once_are_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [stale(), fresh(), fresh()]
    async with run_group(*group) as asked:
        group[1].is_silent = group[2].is_silent = True
        monkeypatch.setattr(sentinels, "_SENTINEL_SECONDS", 0.2)
        while not any(one.is_silent for one in asked._sentinels[1:]):
            with suppress(RedisError):  # a busy machine may hear none at all
                assert await asked.find_primary() == (FORMER, PORT)
        monkeypatch.setattr(sentinels, "_SENTINEL_SECONDS", HANG_SECONDS * 10)
        monkeypatch.setattr(sentinels, "_SILENT_SECONDS", HANG_SECONDS)
        group[1].is_silent = group[2].is_silent = False
        await asyncio.gather(*(one.ask() for one in asked._sentinels[:1]))
        assert await asked.find_primary() == (CURRENT, PORT)


async def is_found(asked: Sentinels) -> bool:
    try:
        return await asked.find_primary() == (CURRENT, PORT)
    except RedisError:
        return False


async def test_refused_epoch_is_not_asked_for_again_at_once() -> None:
    one = untold(CURRENT)
    async with run_group(one) as asked:
        for _ in range(3):
            assert await asked.find_primary() == (CURRENT, PORT)
    assert len(one._writers) == 2, "the refusal has closed the first connection"
