"""One reader of lists, of changes and of single objects: what nobody reads hides nothing of them."""

from typing import Any

import pytest

from tests.harness.unread_values import UNREAD
from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import Listed, Namespace, WatchEvent
from webhook.adapters.kubernetes.api.requests import GarbledError
from webhook.adapters.kubernetes.api.unread_objects import decode_item, decode_list
from webhook.adapters.kubernetes.leases.lease_object import parse_lease

LEASE = b'{"metadata":{"name":"a","resourceVersion":"7","managedFields":%s},"spec":{"holderIdentity":"b"}}'


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_what_nobody_reads_hides_no_object(unread: bytes) -> None:
    item = LEASE % unread
    found, lost = decode_list(b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % item, Listed[Namespace], Namespace)
    assert ([namespace.metadata.name for namespace in found.items or ()], lost) == (["a"], ())
    event = decode_object(b'{"type":"ADDED","object":%s}' % item, WatchEvent)
    assert decode_item(event.object, Namespace) == decode_object(item, Namespace)
    assert decode_object(item, dict[str, Any])["spec"] == {"holderIdentity": "b"}
    lease = parse_lease(item)
    assert (lease.name, lease.holder, lease.build_held("c", 15)["metadata"]["name"]) == ("a", "b", "a")


@pytest.mark.parametrize("name", [b"a\xff", rb"a\ud800"])
def test_what_is_no_unicode_is_read_as_go_reads_it(name: bytes) -> None:
    items = b'{"metadata":{},"items":[{"metadata":{"name":"%s"}},{"metadata":{"name":"b"}}]}' % name
    found, lost = decode_list(items, Listed[Namespace], Namespace)
    assert ([namespace.metadata.name for namespace in found.items or ()], lost) == (["a\ufffd", "b"], ())


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_an_object_that_cannot_be_read_is_named_with_its_fault(unread: bytes) -> None:
    bad = b'{"metadata":{"name":"bad","labels":3,"managedFields":%s}}' % unread
    items = b'{"metadata":{},"items":[%s,{"metadata":{"name":"b"}}]}' % bad
    found, [lost] = decode_list(items, Listed[Namespace], Namespace)
    assert [namespace.metadata.name for namespace in found.items or ()] == ["b"]
    assert (lost.name, lost.reason) == ("bad", "metadata.labels: 3: Expected `object | null`, got `int`")
    with pytest.raises(GarbledError, match="labels"):
        decode_object(bad, Namespace)
