"""The script: its text, and a call of it that outlives a flush of the scripts."""

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

from webhook.adapters.redis_store.transport.connection import Command, SharedConnection

TEXT = "\n".join(
    part.read_text()
    for part in sorted((files("webhook.adapters.redis_store") / "lua").iterdir(), key=lambda part: part.name)
)
_DEMOTED = b"READONLY You can't write"
"""Redis' own words, which the script gives back as the result of what it could not do."""


class Script:
    """A script on any server: sent once to each, called by its hash from then on."""

    def __init__(self, text: str = TEXT) -> None:
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def run(self, line: SharedConnection, keys: Sequence[str], argument: bytes, *before: Command) -> Any:
        """Run it once, whole, behind commands that go before it; return the raw answer."""
        try:
            answer = await line.ask(*before, ("EVALSHA", self._sha, len(keys), *keys, argument))
        except NoScriptError:
            answer = await line.ask(*before, ("EVAL", self._text, len(keys), *keys, argument))
        if isinstance(answer, bytes) and _DEMOTED in answer:
            await line.drop()  # so that the next call finds the primary
        return answer
