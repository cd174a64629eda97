"""JSON values that an API server stores as they come in managedFields or as raw values, and that no decision reads."""

from collections.abc import Mapping

from tests.harness.nesting import nest

UNREAD: Mapping[str, bytes] = {
    "deep": nest(5_000, '{"f:a":', "}").encode(),
    "no UTF-8": b'{"f:\xff\xfe":{}}',
    "no UTF-8 in the spec": b'{"f:spec":{"f:\xff":{}}}',
    "lone surrogate": rb'{"f:\ud800":{}}',
    "all of them": b'{"f:\xff":%s,"f:\\udc00":{}}' % nest(2_000).encode(),
}
