"""Script: the Lua script, called by its hash, and sent again after SCRIPT FLUSH."""

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from webhook.adapters.redis_store.transport import lua_constants
from webhook.adapters.redis_store.transport.connection import Command, SharedConnection

_PARTS = sorted((files("webhook.adapters.redis_store") / "lua").iterdir(), key=lambda part: part.name)
TEXT = "\n".join([lua_constants.rendered(), *(part.read_text() for part in _PARTS)])
_DEMOTED = b"READONLY You can't write"
"""Redis' own error, which the script returns as the result of an operation."""


class Script:
    """A script for any server: sent once to each, then called by its hash."""

    def __init__(self, text: str = TEXT) -> None:
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, connection: SharedConnection, keys: Sequence[str], argument: bytes, *before: Command) -> Any:
        """Run it once, after other commands if given; return the raw answer."""
        try:
            answer = await connection.ask(*before, ("EVALSHA", self._sha, len(keys), *keys, argument))
        except NoScriptError:
            answer = await connection.ask(*before, ("EVAL", self._text, len(keys), *keys, argument))
        if isinstance(answer, bytes) and _DEMOTED in answer:
            await connection.drop()  # so that the next call finds the primary
        return answer
