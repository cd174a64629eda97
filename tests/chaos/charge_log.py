"""The log of charges: each write of a Pod's record in a Redis, as its MONITOR shows it, through restarts."""

import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.chaos.history import BEGAN, ENDED, NOT_RECORDED, ChargeWrite
from tests.chaos.redis_follower import RedisFollower
from tests.redis_servers.record_log import _unescape
from webhook.adapters.redis_store.transport.script import SHARED

_FIELDS = SHARED["POD"]
_LINE = re.compile(rb"\+(\d+)\.(\d{6}) \[\d+ (lua|unknown|[\d.]+:(\d+))\] (.*)\r\n", re.DOTALL)
_SET = re.compile(rb'"SET" "(podgate:\{([^}]*)\}[^"]*:pod:([^":]+))" "((?:[^"\\]|\\.)*)"', re.DOTALL | re.IGNORECASE)
_RECONNECT_SECONDS = 0.05
_POLL_SECONDS = 0.5


class ChargeLog(RedisFollower):
    """Records the writes of one Redis while it is entered. What it may have missed is a fault of kind NOT_RECORDED."""

    _FAULT = NOT_RECORDED

    def _follow(self) -> None:
        is_missing = False
        while not self._is_over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._server.port), timeout=_POLL_SECONDS) as connection:
                    _begin_to_monitor(connection)
                    if is_missing:
                        self._tell(ENDED)
                        is_missing = False
                    self._read(connection)
            except (OSError, ValueError):
                pass  # it is down, or starts
            if not is_missing:
                self._tell(BEGAN)
                is_missing = True
            self._is_over.wait(_RECONNECT_SECONDS)

    def _read(self, connection: socket.socket) -> None:
        client = ""
        for line in self._list_lines(connection):
            found = _LINE.fullmatch(line)
            if found is None:
                continue
            seconds, micros, source, port, command = found.groups()
            if port is not None and command.upper().startswith(b'"EVAL'):
                client = port.decode()
            elif written := _SET.match(command):
                at_us = int(seconds) * 1_000_000 + int(micros)
                role = "master" if source == b"lua" else "slave"  # which gets the writes of scripts as commands
                client_port = client if role == "master" else ""
                self._record.charges.append(build_write(at_us, self._part, role, client_port, written))

    def _list_lines(self, connection: socket.socket) -> Iterator[bytes]:
        """Yield the lines until the connection ends. A paused Redis sends nothing for long."""
        rest = b""
        while not self._is_over.is_set():
            try:
                chunk = connection.recv(1 << 18)
            except TimeoutError:
                continue
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line + b"\n" for line in lines)


def _begin_to_monitor(connection: socket.socket) -> None:
    """Raise ValueError if it loads its files still."""
    connection.sendall(b"MONITOR\r\n")
    answer = b""
    while not answer.endswith(b"\n"):
        chunk = connection.recv(1)
        if not chunk:
            raise ValueError("it ends")
        answer += chunk
    if answer != b"+OK\r\n":
        raise ValueError(answer)


def build_write(at_us: int, part: str, role: str, client: str, written: re.Match[bytes]) -> ChargeWrite:
    """Return a write from the words of a SET."""
    key, tag, uid, value = written.groups()
    packed = _unescape(value)
    record, place = _decode_first(packed)
    fields = dict(zip(_FIELDS, record, strict=False))
    return ChargeWrite(
        at_us=at_us,
        part=part,
        role=role,
        key=key.decode(),
        tag=tag.decode(),
        uid=uid.decode(),
        client=client,
        charged_us=int(fields["charged_at"]),
        generation=int(fields.get("generation") or 0),
        probe=bool(fields.get("probe")),
        refunded=bool(fields.get("refunded")),
        service=str(fields.get("service") or ""),
        cost=fields.get("cost"),
        high=fields.get("high"),
        windows=fields.get("windows"),
        source=str(fields.get("source") or ""),
        place=place.decode(errors="replace"),
        seen_at=time.time(),
    )


def _decode_first(packed: bytes) -> tuple[Any, bytes]:
    """Decode the array at the beginning; namespace and name of the Pod follow it as plain text."""
    end = len(packed)
    while True:
        try:
            return msgspec.msgpack.decode(packed[:end]), packed[end:]
        except msgspec.DecodeError as error:
            trailing = re.search(r"trailing characters \(byte (\d+)\)", str(error))
            if trailing is None:
                raise
            end = int(trailing[1])
