"""JSON log lines, each written in one piece, and a rate limit per kind of line."""

import logging
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from webhook.core.plain_text import escape_document, escape_json
from webhook.support.redaction import mask_credentials

LINES_PER_SECOND_MAX = 10
TEXT_LENGTH_MAX = 2_000
"""Maximum characters of one text. Callers may send long ones, and pipes split long lines."""

_SECOND_NS = 1_000_000_000
_encoder = msgspec.json.Encoder()

Clock = Callable[[], int]
"""Wall clock, nanoseconds since the Unix epoch."""


def clip(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}..."


class JsonLines:
    """Writer of lines to a stream. A line that cannot be written is dropped and counted; `write` does not raise."""

    def __init__(self, stream: TextIO | None = None, clock_ns: Clock = time.time_ns) -> None:
        self._stream = stream
        self._clock_ns = clock_ns
        self._lost = 0

    def now_ns(self) -> int:
        return self._clock_ns()

    def write(self, level: str, message: str, /, **fields: Any) -> None:
        """Write one line without empty fields (None, "", empty collections)."""
        line: dict[str, Any] = {"time": _format_time(self._clock_ns()), "level": level, "msg": message}
        line |= {name: value for name, value in fields.items() if value or value == 0}
        if self._lost:
            line["lines_lost"] = self._lost
        stream = self._stream or sys.stderr
        try:
            stream.write(_encode_line(line) + "\n")
            stream.flush()
        except (OSError, ValueError, TypeError):  # a full or closed pipe, a closed stream, a value without a JSON form
            self._lost += 1
        else:
            self._lost = 0


def _encode_line(line: dict[str, Any]) -> str:
    """Return a line as JSON that is safe on a terminal: names are written by tenants, and rejected input by callers."""
    try:
        encoded = _encoder.encode(line)
    except UnicodeEncodeError:  # a lone surrogate
        encoded = _encoder.encode(escape_document(line))
    return escape_json(encoded.decode())


def _format_time(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, _SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03d}Z"


class BoundedLines:
    """Rate limit in lines per second; the next line reports how many were suppressed. `about` names their kind."""

    def __init__(self, lines: JsonLines, per_second_max: int = LINES_PER_SECOND_MAX, **about: Any) -> None:
        self._lines = lines
        self._per_second_max = per_second_max
        self._about = about
        self._second = 0
        self._written = 0
        self._suppressed = 0

    def write(self, level: str, message: str, /, **fields: Any) -> None:
        if self.has_room():
            self.put(level, message, **fields)

    def has_room(self) -> bool:
        """Return whether `put` may be called now; if not, count a suppressed line."""
        second = self._lines.now_ns() // _SECOND_NS
        if second != self._second:
            self._second, self._written = second, 0
        if self._written < self._per_second_max:
            return True
        self._suppressed += 1
        return False

    def put(self, level: str, message: str, /, **fields: Any) -> None:
        """Write a line after `has_room`."""
        self._written += 1
        suppressed, self._suppressed = self._suppressed, 0
        self._lines.write(level, message, **fields, suppressed=suppressed or None)

    def close(self) -> None:
        """Report the suppressed lines that no line has reported yet."""
        if self._suppressed:
            self._lines.write("warning", "log lines suppressed", **self._about, suppressed=self._suppressed)
            self._suppressed = 0


class StandardLogging(logging.Handler):
    """Handler that writes records of `logging` in the same format, rate-limited: bad calls may cause many of them."""

    def __init__(self, lines: JsonLines) -> None:
        super().__init__()
        self._bounded = BoundedLines(lines)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # wrong arguments of a library
            message = str(record.msg)
        message = mask_credentials(message)
        stack = mask_credentials("".join(traceback.format_exception(*record.exc_info)) if record.exc_info else "")
        # A stack is cut at its start: its end names the error.
        self._bounded.write(record.levelname.lower(), clip(message), logger=record.name, stack=stack[-TEXT_LENGTH_MAX:])
