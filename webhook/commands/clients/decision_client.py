"""Client of the decision port: pages of records, and records as they are made."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.errors import UserError

PAGE_MAX = 1_000
_AGAIN_SECONDS = 2.0
_OVERLAP = "30s"
"""Records of other servers arrive late: each query covers this period again."""


class DecisionPage(Struct, frozen=True):
    """Records, newest first; `next` begins the next page, `error` is why some are missing."""

    decisions: tuple[dict[str, Any], ...]
    next: str | None = None
    error: str | None = None


_page = msgspec.json.Decoder(DecisionPage)


class DecisionClient:
    """Asks a decision port by `get`, which returns the body at a path."""

    def __init__(self, get: Callable[[str], Awaitable[bytes]], name: str) -> None:
        self._get = get
        self._name = name

    async def read_newest(self, conditions: Mapping[str, str], count: int) -> DecisionPage:
        """Return the newest records that meet the conditions, read page by page."""
        found: list[dict[str, Any]] = []
        before: str | None = ""
        error = None
        while before is not None and len(found) < count:
            page = await self._read({**conditions, "limit": str(min(PAGE_MAX, count - len(found))), "before": before})
            found += page.decisions
            before, error = page.next, page.error or error
        return DecisionPage(tuple(found), before, error)

    async def follow(
        self, conditions: Mapping[str, str], on_error: Callable[[UserError], None]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield each record that is made from now on, without end."""
        latest = {**conditions, "since": _OVERLAP, "limit": str(PAGE_MAX)}
        seen = {record["id"] for record in (await self._read(latest)).decisions}
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            try:
                page = await self._read(latest)
            except UserError as error:  # the server may be restarting: ask again
                on_error(error)
                continue
            for record in reversed(page.decisions):
                if record["id"] not in seen:
                    yield record
            seen = {record["id"] for record in page.decisions}

    async def _read(self, parameters: Mapping[str, str]) -> DecisionPage:
        given = {name: text for name, text in parameters.items() if text}
        try:
            return _page.decode(await self._get(f"/api/v1/decisions?{urlencode(given)}"))
        except UNREADABLE_JSON:
            raise UserError(
                f"{self._name}: answers, but not as Podgate's decision port",
                "give --server the URL of the decision port (--decision-listen) of podgate serve",
            ) from None
