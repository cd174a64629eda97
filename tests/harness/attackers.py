"""Hundreds of attackers in their own process: stalled handshakes, slow bodies, missing credentials.

`python -m tests.harness.attackers`: reads one JSON object with the fields of Attack; prints a line when all have begun;
ends on SIGTERM, once it has all wanted answers, with the answers to each kind as its last line.
"""

import asyncio
import json
import signal
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import cycle

from tests.timeouts import HANG_SECONDS

_AGAIN_SECONDS = 0.1
"""Pause before a client that was cut off connects again."""
_DRIP_SECONDS = 1.0


@dataclass(frozen=True)
class Attack:
    """What to attack, from where, with which headers, and with how many at one time of each kind."""

    sources: list[str]
    host: str
    port: int
    certificate: str
    key: str
    good_head: str
    """Of a known caller; its body is to have 10,000 bytes."""
    bad_heads: list[str]
    stalled: int
    dripping: int
    bad: int
    wanted: list[str]
    """Answers, as in Answers, without which it does not end."""


Answers = Counter[str]
"""Answers by kind and status, such as `dripping 503`; `cut` if the connection ended without one."""


@asynccontextmanager
async def run_attack(attack: Attack) -> AsyncIterator[Answers]:
    """Attack until the block ends; the answers are complete then."""
    answers: Answers = Counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asdict(attack)).encode() + b"\n")
        async with asyncio.timeout(HANG_SECONDS):
            assert await process.stdout.readline() == b"begun\n"
        yield answers
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
        answers.update(json.loads(output or b"{}"))


class _Attackers:
    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.load_cert_chain(attack.certificate, attack.key)
        self._sources = cycle(attack.sources)  # one has ports for half a minute
        self._bad_heads = cycle(attack.bad_heads)
        self.answers: Answers = Counter()

    async def run(self, ended: asyncio.Event) -> None:
        kinds: tuple[tuple[str, int, Callable[[], Awaitable[bytes]]], ...] = (
            ("stalled", self._attack.stalled, self._stall),
            ("dripping", self._attack.dripping, self._drip),
            ("bad", self._attack.bad, self._send_bad_head),
        )
        tasks = [
            asyncio.create_task(self._repeat(kind, operation)) for kind, count, operation in kinds for _ in range(count)
        ]
        await asyncio.sleep(1)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await ended.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_SECONDS):
                while not set(self._attack.wanted) <= set(self.answers):  # noqa: ASYNC110  later answers may be among them
                    await asyncio.sleep(_AGAIN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, kind: str, operation: Callable[[], Awaitable[bytes]]) -> None:
        while True:
            try:
                answer = await operation()
            except (OSError, asyncio.IncompleteReadError):
                answer = b""
            self.answers[f"{kind} {answer.split(b' ')[1].decode() if answer else 'cut'}"] += 1
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _stall(self) -> bytes:
        reader, writer = await self._connect(None)
        try:
            return await reader.read()
        finally:
            writer.transport.abort()

    async def _drip(self) -> bytes:
        async with self._request(self._attack.good_head) as (reader, writer):
            answer = asyncio.create_task(reader.readline())
            while not answer.done():
                writer.write(b" ")
                await asyncio.wait((answer,), timeout=_DRIP_SECONDS)
            return await answer

    async def _send_bad_head(self) -> bytes:
        async with self._request(next(self._bad_heads)) as (reader, _):
            return await reader.readline()

    @asynccontextmanager
    async def _request(self, head: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._connect(self._context)
        try:
            writer.write(head.encode())
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _connect(self, context: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        attack = self._attack
        return await asyncio.open_connection(attack.host, attack.port, ssl=context, local_addr=(next(self._sources), 0))


async def _main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    attackers = _Attackers(Attack(**json.loads(await asyncio.to_thread(sys.stdin.readline))))
    await attackers.run(ended)
    sys.stdout.write(json.dumps(attackers.answers))


if __name__ == "__main__":
    asyncio.run(_main())
