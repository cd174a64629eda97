"""The script: its text, and a call of it that outlives a flush of the scripts."""

from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

TEXT = "\n".join(
    part.read_text() for part in sorted((files(__package__) / "lua").iterdir(), key=lambda part: part.name)
)
_SHA = sha1(TEXT.encode(), usedforsecurity=False).hexdigest()


async def run(client: Any, keys: Sequence[str], argument: bytes) -> Any:
    """Run it once, whole, by a client of `redis.asyncio` (whose commands lack types); return the raw answer."""
    try:
        return await client.execute_command("EVALSHA", _SHA, len(keys), *keys, argument)
    except NoScriptError:
        return await client.execute_command("EVAL", TEXT, len(keys), *keys, argument)
