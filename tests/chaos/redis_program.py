"""The program of Redis and Sentinels in a run: with a clock that can be set, and a configuration that outlives it."""

from pathlib import Path

from tests.chaos import clocks
from tests.redis_servers.inventory import RedisProgram

_REDIS = """\
#!/bin/sh
# Its configuration is kept in a file, as that of a real one: Sentinels write into it who the primary is.
case "$*" in
*--sentinel*) [ -e kept.conf ] || cp "$1" kept.conf; mode=--sentinel;;
*) [ -e kept.conf ] || for word in "$@"; do
     case "$word" in --*) printf '\\n%s' "${word#--}";; *) printf ' "%s"' "$word";; esac
   done > kept.conf;;
esac
exec CLOCK PROGRAM ./kept.conf $mode
"""


def write_program(real: RedisProgram, folder: Path) -> RedisProgram:
    """Return the same program with a clock, which the file `clock` in its working folder steps, and with a memory."""
    folder.mkdir(parents=True)
    path = folder / "redis-server"
    path.write_text(_REDIS.replace("CLOCK", " ".join(clocks.list_words("clock"))).replace("PROGRAM", str(real.path)))
    path.chmod(0o700)
    return RedisProgram(real.name, path)
