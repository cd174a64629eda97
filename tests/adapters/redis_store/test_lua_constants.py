"""Constants of the Lua script."""

import os
import subprocess
import sys

from webhook.adapters.redis_store.transport.script import render_tables
from webhook.core.breaker import TRANSITIONS, TransitionCause

PRINTED = "from webhook.adapters.redis_store.transport.script import TEXT; print(TEXT)"


def script(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_script_text_is_equal_in_every_process() -> None:
    first = script("1")
    assert render_tables() in first
    assert first == script("2")


def test_script_has_every_transition_and_cause() -> None:
    text = render_tables()
    for cause in TransitionCause:
        assert f'{cause.name} = "{cause.value}"' in text
    for (_, cause), new in TRANSITIONS.items():
        assert f'{cause.value} = "{new.value}"' in text
