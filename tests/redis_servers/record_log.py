"""RecordLog: each write of a Pod's record, as MONITOR shows it: what was charged and taken back by Redis' own time.

It knows nothing of counters: neither rings nor sums.
"""

import asyncio
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

_LINE_BYTES = 1 << 26
_LINE = re.compile(rb"\+(\d+)\.(\d{6}) \[\d+ (?:lua|[\d.]+:(\d+))\] (.*)\r\n", re.DOTALL)
_SET = re.compile(rb'"SET" "[^"]*:pod:([^"]+)" "((?:[^"\\]|\\.)*)" "PX"', re.DOTALL)
_ESCAPED = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
_CHARACTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_END = "the-end-of-the-log"
_CHARGED_AT, _REFUNDED = 1, 4
_CLOCK_US = 5
"""Redis reads its time for a script just before or after it reads that for MONITOR."""


class Call(NamedTuple):
    """One call of the script: when it began, by whom, and which of this client's calls it is."""

    at_us: int
    client_port: int
    place: int


@dataclass
class Charge:
    """One charge of a Pod: its time, the numbers of the calls that made it and took it back, and when that was."""

    uid: str
    charged_us: int
    made_in: int
    taken_back_in: int | None = None
    taken_back_us: int = 0


@dataclass
class RecordLog:
    """Use it as a context manager. `suffix` follows each record: namespace and name of all Pods. Microseconds."""

    port: int
    suffix: str

    async def __aenter__(self) -> Self:
        self.calls: list[Call] = []
        self.charges: dict[str, list[Charge]] = {}
        self._places = Counter[int]()
        self._ended = asyncio.Event()
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=_LINE_BYTES)
        self._writer.write(b"MONITOR\r\n")
        await self._reader.readline()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._writer.transport.abort()
        await asyncio.wait([self._reading])

    async def catch_up(self) -> None:
        """Wait until the log has everything that Redis has done so far."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"ECHO {_END}\r\n".encode())
        await reader.readline()
        await self._ended.wait()
        writer.close()

    def find_call(self, at_us: int) -> int:
        """Return the number of the call that took this time from Redis."""
        return bisect_right(self.calls, at_us + _CLOCK_US, key=lambda call: call.at_us) - 1

    def is_booked(self, charge: Charge) -> bool:
        """Return whether a charge has an earlier time than the call that made it, so that no acquire has made it.

        Redis may not run between its two readings of the time, but then it carries out no other call either.
        """
        return self.find_call(charge.charged_us) < charge.made_in - 1

    async def _read(self) -> None:
        while line := await self._reader.readline():
            found = _LINE.fullmatch(line)
            assert found, line
            seconds, micros, port, command = found.groups()
            at_us = int(seconds) * 1_000_000 + int(micros)
            if port is not None and command.startswith(b'"EVAL'):
                client_port = int(port)
                self._places[client_port] += 1
                self.calls.append(Call(at_us, client_port, self._places[client_port]))
            elif command.startswith(b'"ECHO" "' + _END.encode()):
                self._ended.set()
            elif port is None and (written := _SET.match(command)):
                record = msgspec.msgpack.decode(_unescape(written[2]).removesuffix(self.suffix.encode()))
                self._add(written[1].decode(), at_us, record[_CHARGED_AT], is_refunded=record[_REFUNDED])

    def _add(self, uid: str, at_us: int, charged_us: int, *, is_refunded: bool) -> None:
        charges, number = self.charges.setdefault(uid, []), len(self.calls) - 1
        last = charges[-1] if charges else None
        is_known = last is not None and last.charged_us == charged_us and last.taken_back_in is None
        if last is not None and last.taken_back_in is None and (is_refunded or not is_known):
            last.taken_back_in, last.taken_back_us = number, at_us
        if not is_refunded and not is_known:
            charges.append(Charge(uid, charged_us, number))


def _unescape(text: bytes) -> bytes:
    def character(found: re.Match[bytes]) -> bytes:
        code, letter = found.groups()
        return bytes.fromhex(code.decode()) if code else _CHARACTERS.get(letter, letter)

    return _ESCAPED.sub(character, text)
