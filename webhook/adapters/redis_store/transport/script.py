"""Script: the Lua script, called by its hash, and sent again after SCRIPT FLUSH. Why one: docs/design/one-script.md."""

import re
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from redis.exceptions import NoScriptError

from webhook.adapters.redis_store.transport import lua_constants
from webhook.adapters.redis_store.transport.connection import SharedConnection
from webhook.adapters.redis_store.transport.stream import Command

_CONSTANT = re.compile(r"^local ([A-Z_]+) = (-?\d+)", re.MULTILINE)
_FOLDER = files("webhook.adapters.redis_store") / "lua"


def _parts(folder: Traversable) -> list[str]:
    files = sorted((part for part in folder.iterdir() if part.name.endswith(".lua")), key=lambda part: part.name)
    return [part.read_text() for part in files]


def _modules() -> str:
    """Return a Lua function that returns functions, each of which defines a module, after what all modules need.

    One function around them all: it alone looks up the outer locals of every module at each call.
    """
    names = ("refusals", "waits", "live", "breaker", "operations", "queue")
    heads = dict.fromkeys(names, "") | {"breaker": lua_constants.rendered()}
    texts = ["\n".join([f"{name} = function()", head, *_parts(_FOLDER / name), "end,"]) for name, head in heads.items()]
    return "\n".join(["function define_modules()", *_parts(_FOLDER / "modules"), "return {", *texts, "}", "end"])


def _text() -> str:
    constants, state, *parts, main = _parts(_FOLDER)
    values = {**dict(_CONSTANT.findall(constants)), **lua_constants.literals()}
    text = "\n".join([state, "local function run()", *parts, _modules(), main, "end", "return run()"])
    return re.sub(rf"(?<![.\w])({'|'.join(values)})\b", lambda found: values[found[1]], text)


TEXT = _text()
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
