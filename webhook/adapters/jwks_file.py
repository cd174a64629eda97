"""The token keys from a JWKS file: read again when it changes, the last good set kept."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from webhook.authentication.tokens.jwks import KEY_SET_BYTES_MAX, REMEDY, KeySet, claimed_by, read_key_set
from webhook.errors import UserError
from webhook.ports import TokenKey
from webhook.support.watched_file import Reloading


class JwksFile(Reloading[KeySet]):
    """A KeySource. Somebody writes this file for us, so one bad key in it is a mistake to be told, not passed over."""

    name = "file"
    may_claim = False

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        self.claimed: Collection[str] = frozenset()

        def read(wrong: str | None) -> None:
            # An issuer whose key is taken out, since it is burnt, is not thereby anybody's.
            self.claimed = {*self.claimed, *claimed_by(self.keys)}
            on_reading(wrong)

        super().__init__([path], KEY_SET_BYTES_MAX, lambda contents: _faultless(contents[0], str(path)), read)

    @property
    def keys(self) -> Mapping[str, TokenKey]:
        return self.value.keys

    @property
    def trouble(self) -> str:
        return self.error or ""

    async def look_again(self) -> None:
        """Do nothing: the file is looked at every few seconds anyway."""


def _faultless(content: bytes, name: str) -> KeySet:
    found = read_key_set(content, name, may_bind=True)
    if found.faults:
        raise UserError("\n".join(found.faults), REMEDY)
    return found
