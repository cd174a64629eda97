"""Declaration of one setting: its reader, its meaning and its default, as the metadata of a dataclass field."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from webhook.settings.readers import ClientIdentity


def setting(
    read: Callable[[str], Any],
    meaning: str,
    default: str | None = None,
    *,
    optional: bool = False,
    secret: bool = False,
    modes: tuple[ClientIdentity, ...] = tuple(ClientIdentity),
    reduced: str | None = None,
) -> Any:
    """Declare one setting: its reader, its meaning, and its default as a user would write it.

    An `optional` setting may be None; one that may hold a `secret`, such as a URL with a password, is shown masked.
    A setting is an error under a `--client-identity` that is not in `modes`. `reduced` is its default in that mode.
    """
    metadata = {"read": read, "meaning": meaning, "default": default, "optional": optional, "secret": secret}
    return field(metadata={**metadata, "modes": modes, "reduced": reduced or default}, repr=not secret)
