"""Published keys: those of a publisher's key set that Podgate can use, for one of its issuers or for any."""

from collections.abc import Mapping

from webhook.authentication.tokens.jwks import REMEDY, read_key_set
from webhook.errors import UserError
from webhook.ports import KeyPublisher, TokenKey
from webhook.support.condition import Condition


class PublishedKeys:
    """Parser of what a publisher has. It also serves others: keys that Podgate cannot use are skipped.

    `unusable` holds their faults, one line each.
    """

    def __init__(self, publisher: KeyPublisher, unusable: Condition[str]) -> None:
        self._publisher = publisher
        self._unusable = unusable

    async def fetch(self) -> Mapping[str, TokenKey]:
        """Return the keys by kid; UserError if there are none."""
        document = await self._publisher.fetch()
        found = read_key_set(document.content, document.name, document.issuer)
        faults = "\n".join(found.faults)
        if faults:
            self._unusable.enter(faults)
        else:
            self._unusable.leave()
        if not found.keys:
            raise UserError(f"no key of the set can be used\n{faults}", REMEDY)
        return found.keys
