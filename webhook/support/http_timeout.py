"""Timeouts of an HTTP client's sockets."""

import aiohttp


def build_socket_timeouts(
    connect_seconds: float | None = None, silence_seconds: float | None = None
) -> aiohttp.ClientTimeout:
    """Return timeouts without a total, for which the caller uses `asyncio.timeout`.

    If aiohttp's total timeout and a cancellation of the task coincide, as they do after a stall of the process, aiohttp
    raises TimeoutError, and the cancellation is lost.
    """
    return aiohttp.ClientTimeout(sock_connect=connect_seconds, sock_read=silence_seconds)
