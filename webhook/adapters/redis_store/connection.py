"""The connection to Redis: made from a URL, without retries of its own, patient enough to stay in step."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from webhook.errors import UserError

_CONNECT_SECONDS = 2.0
# Longer than any deadline of an admission: who waits no longer leaves, the answer is read all the same.
_ANSWER_SECONDS = 10.0


def connect(url: str) -> Redis:
    """Return a client for redis://, rediss:// or unix://; connects when it is first asked."""
    try:
        return Redis.from_url(
            url,
            decode_responses=False,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_ANSWER_SECONDS,
            **({} if url.startswith("unix:") else {"socket_keepalive": True}),
            # A call that may have been carried out is not repeated behind our back.
            retry=Retry(NoBackoff(), 0),
            max_connections=4,
        )
    except (ValueError, TypeError) as error:
        raise UserError(f"--store: not a Redis URL: {error}", "write redis://HOST:PORT/DB") from None
