"""Token keys from a JWKS file, reloaded when it changes; an invalid file leaves the last good set in use."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from webhook.authentication.jwks import REMEDY, KeySet, list_issuers, read_key_set
from webhook.errors import UserError
from webhook.ports import KEY_SET_BYTES_MAX, TokenKey
from webhook.support.watched_file import WatchedFile


class JwksFile(WatchedFile[KeySet]):
    """A KeySource. The file is written for Podgate, so one invalid key is an error, not skipped."""

    name = "file"
    may_claim = False

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        self.claimed: Collection[str] = frozenset()

        def read(wrong: str | None) -> None:
            # An issuer whose compromised key was removed must not become available to other key sources.
            self.claimed = {*self.claimed, *list_issuers(self.keys)}
            on_reading(wrong)

        super().__init__([path], KEY_SET_BYTES_MAX, lambda contents: _parse_faultless(contents[0], str(path)), read)

    @property
    def keys(self) -> Mapping[str, TokenKey]:
        return self.value.keys

    @property
    def trouble(self) -> str:
        return self.error or ""

    async def refetch(self) -> None:
        """Do nothing: the file is polled every few seconds."""


def _parse_faultless(content: bytes, name: str) -> KeySet:
    found = read_key_set(content, name, may_bind=True)
    if found.faults:
        raise UserError("\n".join(found.faults), REMEDY)
    return found
