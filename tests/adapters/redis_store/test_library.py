"""Imports from redis-py, and its exceptions for error replies."""

import json
import subprocess
import sys

import pytest
from redis._parsers.base import BaseParser

from webhook.adapters.redis_store.transport.stream import make_error

_IMPORT = """
import json, sys
import webhook.adapters.redis_store
print(json.dumps([name for name in sys.modules if name.startswith("redis.")]))
"""
_CODES = [code for code in BaseParser.EXCEPTION_CLASSES if code != "ERR"]
_TEXTS = [
    text
    for text in BaseParser.EXCEPTION_CLASSES["ERR"]
    if not text.startswith("Error ") and text != "no such fieldset"  # of commands that Podgate does not send
]


def test_its_clients_and_commands_are_not_imported() -> None:
    found = subprocess.run([sys.executable, "-c", _IMPORT], stdout=subprocess.PIPE, check=True)
    assert set(json.loads(found.stdout)) == {"redis.exceptions", "redis.crc", "redis.typing"}


def test_the_whole_library_is_used_where_it_has_been_imported_before() -> None:
    code = "import redis; import webhook.adapters.redis_store; print(redis.Redis)"
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)


@pytest.mark.parametrize(
    "reply",
    [
        *(f"{code} 3999 127.0.0.1:6381" for code in _CODES),
        *(f"ERR {text}" for text in _TEXTS),
        "ERR unknown command",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR",
        "",
    ],
)
def test_an_error_reply_is_the_exception_of_redis_py(reply: str) -> None:
    error, expected = make_error(reply), BaseParser.parse_error(reply)
    assert type(error) is type(expected)
    assert str(error) == str(expected)
    assert error.status_code == expected.status_code
