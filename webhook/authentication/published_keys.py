"""Published keys that Podgate can use, and their union: no source replaces another's keys or signs for its issuer."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from webhook.authentication.jwks import REMEDY, read_key_set
from webhook.errors import UserError
from webhook.ports import KeyPublisher, KeySource, TokenKey
from webhook.support.condition import Condition

_GENERATION = attrgetter("generation")


class JwksUnion:
    """TokenKeys. If two sources have different keys with the same kid, both are tried."""

    def __init__(self, sources: Sequence[KeySource]) -> None:
        self._sources = tuple(sources)

    def find(self, kid: str) -> Sequence[TokenKey]:
        return [key for source in self._sources if (key := source.keys.get(kid)) is not None]

    def may_sign(self, key: TokenKey, issuer: str) -> bool:
        if key.issuer is not None:
            return key.issuer == issuer
        return not any(source.may_claim or issuer in source.claimed for source in self._sources)

    @property
    def generation(self) -> int:
        return sum(map(_GENERATION, self._sources))

    async def refetch(self) -> bool:
        before = self.generation
        await asyncio.gather(*(source.refetch() for source in self._sources))
        return self.generation != before

    def count_keys(self) -> dict[str, int]:
        """Return how many keys each source has."""
        return {source.name: len(source.keys) for source in self._sources}

    def list_missing(self, issuers: Collection[str | None]) -> list[str]:
        """Return why tokens of these issuers cannot be verified; None means any issuer.

        A source without keys matters only if one of these issuers may need it: the server must stay ready for callers
        whose keys it has.
        """
        wanted = set(issuers)
        unclaimed = wanted.difference(*(source.claimed for source in self._sources))
        return [
            f"no keys from {source.name}: {source.trouble}"
            for source in self._sources
            if not source.keys and (unclaimed or wanted & set(source.claimed))
        ]


class PublishedKeys:
    """Parses a publisher's keys. The publisher also serves others: keys that Podgate cannot use are skipped.

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
