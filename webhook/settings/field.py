"""Declaration of one setting as a dataclass field, with its reader, meaning and default as metadata."""

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

    An `optional` setting may be None. A `secret`, such as a URL with a password, is masked in messages. A setting is an
    error under a `--client-identity` that is not in `modes`. `reduced`: its default with `--client-identity reduced`.
    """
    metadata = {"read": read, "meaning": meaning, "default": default, "optional": optional, "secret": secret}
    return field(metadata={**metadata, "modes": modes, "reduced": reduced or default}, repr=not secret)
