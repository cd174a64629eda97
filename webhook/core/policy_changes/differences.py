"""Differences of two policies by service and pool, after `defaults`: fields, owners of Pods, and lost counters."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from webhook.core.policy.model import Policy, Pool, Service
from webhook.core.policy_changes.fields import FieldChange, compare_fields, format_value
from webhook.core.policy_changes.owners import find_changed_owners
from webhook.core.quota.counter_resets import find_resets


class EntryChange(Struct, frozen=True):
    """A service or pool: `change` is added, removed or changed."""

    kind: str
    name: str
    change: str
    fields: tuple[FieldChange, ...] = ()


class PolicyDifference(Struct, frozen=True):
    """All differences of two policies; none if both have the same effect."""

    entries: tuple[EntryChange, ...] = ()
    policy: tuple[FieldChange, ...] = ()
    """Changed fields outside services and pools."""
    owners: tuple[str, ...] = ()
    """Sentences about Pods that may change their service because of the order."""
    counters: tuple[str, ...] = ()
    """Limits that start empty."""

    def __bool__(self) -> bool:
        return bool(self.entries or self.policy or self.owners)

    def format_lines(self) -> Iterator[str]:
        """Yield the difference as lines for people."""
        if self.policy:
            yield "policy"
            yield from (f"  {change}" for change in self.policy)
        for entry in self.entries:
            yield f"{entry.kind} {entry.name}" + (f": {entry.change}" if entry.change != "changed" else "")
            yield from (f"  {change}" for change in entry.fields)
        if self.owners:
            yield "order: the first service that matches owns a Pod"
            yield from (f"  {owner}" for owner in self.owners)
        if self.counters:
            yield "counters"
            yield from (f"  {counter}" for counter in self.counters)


def compare(before: Policy, after: Policy) -> PolicyDifference:
    """Return the difference of two policies, `defaults` merged."""
    whole = tuple(
        change
        for attribute in Policy.__struct_fields__
        if attribute not in {"services", "pools"}
        for change in compare_fields(getattr(before, attribute), getattr(after, attribute), _encode_name(attribute))
    )
    entries = (
        *_compare_entries("pool", before.pools, after.pools),
        *_compare_entries("service", before.services, after.services),
    )
    owners = tuple(find_changed_owners(before.services, after.services))
    return PolicyDifference(entries, whole, owners, tuple(find_resets(before, after)))


def _encode_name(attribute: str) -> str:
    return Policy.__struct_encode_fields__[Policy.__struct_fields__.index(attribute)]


def _compare_entries(
    kind: str, before: Sequence[Service] | Sequence[Pool], after: Sequence[Service] | Sequence[Pool]
) -> Iterator[EntryChange]:
    old, new = ({entry.name: entry for entry in entries} for entries in (before, after))
    for name in dict.fromkeys((*new, *old)):
        if name not in old:
            fields = tuple(FieldChange(path, "", value, "added") for path, value in _summarize(new[name]))
            yield EntryChange(kind, name, "added", fields)
        elif name not in new:
            yield EntryChange(kind, name, "removed")
        elif changes := tuple(compare_fields(old[name], new[name])):
            yield EntryChange(kind, name, "changed", changes)


def _summarize(entry: Service | Pool) -> Iterator[tuple[str, str]]:
    """Yield the stanzas of a new entry that differ from the defaults."""
    for name, attribute in zip(entry.__struct_encode_fields__, entry.__struct_fields__, strict=True):
        value = format_value(getattr(entry, attribute))
        if name not in {"name", "modes", "slaClass", "failureMode"} and value not in {"", "{}", "[]"}:
            yield name, value
