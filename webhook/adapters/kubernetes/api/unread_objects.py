"""Lists in which single objects cannot be decoded: the others are read, and these are named, with field and value.

The API server checks the objects of its own kinds. It checks those of other kinds only as far as their schema does, and
managedFields of none: `decode_foreign` reads an object whatever is in fields that are not read.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Raw, Struct, field

from webhook.adapters.kubernetes.api.field_faults import describe_fault
from webhook.adapters.kubernetes.api.objects import AnObject, Listed, ListMetadata
from webhook.adapters.kubernetes.api.requests import GarbledError
from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign


class UnreadObject(Struct, frozen=True):
    """An object that cannot be decoded. `reason` has the field and the value."""

    name: str
    """With the namespace, if it has one: NAMESPACE/NAME."""
    uid: str
    version: str
    reason: str


class _Identity(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def shown_name(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(Struct, frozen=True):
    metadata: _Identity


class _RawList(Struct, frozen=True):
    metadata: ListMetadata = field(default_factory=ListMetadata)
    items: list[Raw] | None = None


def decode_list(
    body: bytes, items: type[Listed[AnObject]], item: type[AnObject]
) -> tuple[Listed[AnObject], tuple[UnreadObject, ...]]:
    """Return a list, and the objects left out of it. GarbledError: it is no list, or a bad object has no name."""
    try:
        return decode_foreign(body, items), ()
    except msgspec.ValidationError:
        return _decode_one_by_one(body, item)
    except UNREADABLE_JSON as error:
        raise GarbledError(f"not understood: {error}") from error


def _decode_one_by_one(body: bytes, item: type[AnObject]) -> tuple[Listed[AnObject], tuple[UnreadObject, ...]]:
    try:
        found = decode_foreign(body, _RawList)
    except UNREADABLE_JSON as error:
        raise GarbledError(f"not understood: {error}") from error
    read: list[AnObject] = []
    unread: list[UnreadObject] = []
    for raw in found.items or ():
        decoded = decode_item(raw, item)
        if isinstance(decoded, UnreadObject):
            unread.append(decoded)
        else:
            read.append(decoded)
    return Listed(found.metadata, read), tuple(unread)


def decode_item(raw: Raw, item: type[AnObject]) -> AnObject | UnreadObject:
    """Return an object, or what is wrong with it. GarbledError: it has no name."""
    try:
        return decode_foreign(raw, item)
    except msgspec.ValidationError as error:
        identity = _decode_identity(raw, error)
        return UnreadObject(identity.shown_name, identity.uid, identity.resource_version, _describe_fault(error, raw))
    except UNREADABLE_JSON as error:
        raise GarbledError(f"not understood: {error}") from error


def _describe_fault(error: msgspec.ValidationError, raw: Raw) -> str:
    try:
        return describe_fault(error, decode_foreign(raw, object))
    except UNREADABLE_JSON as other:  # what follows the first fault is not even JSON
        raise GarbledError(f"not understood: {other}") from other


def _decode_identity(raw: Raw, cause: Exception) -> _Identity:
    try:
        return decode_foreign(raw, _Identified).metadata
    except UNREADABLE_JSON:
        raise GarbledError(f"not understood, and without a name: {cause}") from cause


class UnreadObjects:
    """The objects of one collection that cannot be read now. Each change is reported: the reasons by name."""

    def __init__(self, report: Callable[[Mapping[str, str]], None]) -> None:
        self._report = report
        self._reasons: dict[str, str] = {}

    def replace(self, found: Iterable[UnreadObject]) -> None:
        """Set all of them, after a list."""
        self._set({unread.name: unread.reason for unread in found})

    def put(self, found: UnreadObject) -> None:
        self._set({**self._reasons, found.name: found.reason})

    def forget(self, raw: Raw) -> None:
        """Forget an object that can be read, or is gone."""
        if self._reasons:
            name = decode_foreign(raw, _Identified).metadata.shown_name
            self._set({other: reason for other, reason in self._reasons.items() if other != name})

    def _set(self, reasons: dict[str, str]) -> None:
        if reasons != self._reasons:
            self._reasons = reasons
            self._report(reasons)
