"""The program of Redis and Sentinels in a run: with a clock that can be set, and a configuration that outlives it."""

from pathlib import Path

from tests.chaos import clocks
from tests.chaos.small_disks import SmallDisks
from tests.redis_servers.inventory import RedisProgram

_REDIS = """\
#!/bin/sh
# Its configuration is kept in a file, as that of a real one: Sentinels write into it who the primary is.
case "$*" in
*--sentinel*) [ -e kept.conf ] || cp "$1" kept.conf; exec CLOCK PROGRAM ./kept.conf --sentinel;;
*) [ -e kept.conf ] || for word in "$@"; do
     case "$word" in --*) printf '\\n%s' "${word#--}";; *) printf ' "%s"' "$word";; esac
   done > kept.conf;;
esac
exec DISK CLOCK PROGRAM ./kept.conf OPTIONS
"""


def write_program(real: RedisProgram, folder: Path, disks: SmallDisks | None = None) -> RedisProgram:
    """Return the same program with a clock, which the file `clock` in its working folder steps, and with a memory.

    With `disks` it keeps its data on the one that has the name of its working folder.
    """
    folder.mkdir(parents=True)
    path = folder / "redis-server"
    words = {
        "CLOCK": " ".join(clocks.list_words('"$PWD/clock"')),
        "PROGRAM": str(real.path),
        "DISK": disks.words if disks else "",
        "OPTIONS": f'--dir "{disks.folder}/${{PWD##*/}}"' if disks else "",
    }
    text = _REDIS
    for word, value in words.items():
        text = text.replace(word, value)
    path.write_text(text)
    path.chmod(0o700)
    return RedisProgram(real.name, path)
