"""Query of decision records: conditions on a record, the order of records, and the bounds of an answer."""

from msgspec import Struct

from webhook.core.admission.decision import Verdict
from webhook.core.reporting.record_codec import RecordHead

LIMIT, LIMIT_MAX = 100, 1_000
_MILLISECOND_DIGITS = 13


def parse_milliseconds(record_id: str) -> int:
    """Return the time of a record by its id. ValueError: it is no id."""
    digits, dash, _ = record_id.partition("-")
    if not dash or len(digits) != _MILLISECOND_DIGITS or not (digits.isascii() and digits.isdecimal()):
        raise ValueError("write the `id` of a record")
    return int(digits)


class DecisionQuery(Struct, frozen=True, kw_only=True):
    """Conditions that a record must meet; empty ones are met by all. `owner` is the controller's name or uid.

    `since_ms` is the oldest time, `before` the id of a record that is newer than all of the answer.
    """

    service: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    owner: str = ""
    denied: bool = False
    since_ms: int = 0
    before: str = ""
    limit: int = LIMIT

    def matches(self, head: RecordHead) -> bool:
        own, group, owner = head.own, head.group, head.group.owner
        return (
            (not self.service or group.service == self.service)
            and (not self.namespace or group.namespace == self.namespace)
            and (not self.name or own.name == self.name)
            and (not self.uid or own.uid == self.uid)
            and (not self.owner or (owner is not None and self.owner in (owner.name, owner.uid)))
            and (not self.denied or group.decision is Verdict.DENY)
            and (not self.before or own.id < self.before)
            and own.at_ms >= self.since_ms
        )
