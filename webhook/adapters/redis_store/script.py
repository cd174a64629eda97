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


async def run(pool: Any, keys: Sequence[str], argument: bytes) -> Any:
    """Run it once, whole, on a connection of a `redis.asyncio` pool (whose ways lack types); return the raw answer.

    The connection is asked itself: the client's way there costs as much again as the call. One that did not end a
    call in good order is closed, for its next answer would be taken for that of the next call.
    """
    connection: Any = await pool.get_connection()
    try:
        try:
            await connection.send_command("EVALSHA", _SHA, len(keys), *keys, argument)
            return await connection.read_response()
        except NoScriptError:
            await connection.send_command("EVAL", TEXT, len(keys), *keys, argument)
            return await connection.read_response()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
