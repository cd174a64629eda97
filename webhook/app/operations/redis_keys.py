"""Deletion of Podgate's keys of one cluster in a Redis."""

from pathlib import Path

from webhook.adapters.clocks import SystemClock
from webhook.errors import StoreUnavailableError, UserError
from webhook.ports import WatchReports
from webhook.ports.store_url import StoreFiles
from webhook.support.redaction import masked

_SECONDS = 30.0


async def delete_keys(url: str, cluster: str, password: Path | None) -> int:
    """Delete the keys of a cluster; return how many there were. UserError: no access, or a wrong URL."""
    from webhook.adapters import redis_store  # noqa: PLC0415  its library takes long to load

    store = redis_store.RedisStore(
        redis_store.open_transport(url, StoreFiles(password_file=password)),
        cluster,
        SystemClock(),
        WatchReports(_nothing, _nothing, _nothing),
        deadline_seconds=_SECONDS,
    )
    try:
        await store.ping()
        return await store.forget()
    except StoreUnavailableError as error:
        remedy = "the user needs SCAN and UNLINK on ~podgate:*: docs/redis.md"
        raise UserError(f"--redis: {masked(url)!r}: {error}", remedy) from None
    finally:
        await store.close()


def _nothing(*_: str) -> None:
    """Ignore a report: the command shows the error itself."""
