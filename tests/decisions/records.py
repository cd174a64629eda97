"""Decision records, and a store of them in memory, for tests."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tests.harness.records import failure_of
from webhook.core.admission.decision import Half, Verdict
from webhook.core.reporting.packed_record import OwnFields, RecordGroup
from webhook.core.reporting.record_codec import EncodedRecord
from webhook.errors import StoreUnavailableError
from webhook.ports import SharedPage, SharedRecord

NOW_MS = 1_800_000_000_000


def encode_record(at_ms: int, replica: str = "a", **fields: Any) -> EncodedRecord:
    """Return a record of that moment; by default alice's creation of a Pod, which is admitted."""
    own: dict[str, Any] = {
        "at_ms": at_ms,
        "number": 0,
        "replica": replica,
        "name": "web-1",
        "uid": "",
        "at_ns": at_ms * 1_000_000,
        "ends_ns": (),
        "trace_id": "",
        "breaker": None,
    }
    group: dict[str, Any] = {
        "decision": Verdict.ADMIT,
        "namespace": "shop",
        "service": "",
        "owner": None,
        "half": Half.VALIDATE,
        "operation": "CREATE",
        "sub_resource": "",
        "dry_run": False,
        "user": "alice",
        "status": None,
        "policy": "",
        "workload": "",
        "findings": (),
        "exemption": "",
        "degraded": "",
        "uncounted": False,
        "stages": (),
        "namespace_labels": {},
    }
    for name, value in fields.items():
        (own if name in OwnFields.__struct_fields__ else group)[name] = value
    encode = msgspec.msgpack.encode
    return EncodedRecord(encode(OwnFields(**own)), encode(RecordGroup(**group)))


def encode_document(record: EncodedRecord) -> bytes:
    """Return the JSON form, as the decision port answers."""
    return msgspec.json.encode(record.read())


class MemoryRecords:
    """`ports.SharedDecisions` in memory; `error` is raised by each call."""

    def __init__(self) -> None:
        self.records: list[SharedRecord] = []
        self.policies: dict[str, bytes] = {}
        self.error = ""
        self.pages = 0

    async def append(self, records: Sequence[bytes]) -> None:
        self._check()
        self.records += [SharedRecord(NOW_MS, record) for record in records]

    def add(self, written_ms: int, record: EncodedRecord) -> None:
        self.records.append(SharedRecord(written_ms, record.shared))

    async def read_page(self, begin: str, count: int) -> SharedPage:
        self._check()
        self.pages += 1
        newest = self.records[::-1]
        if begin.startswith("("):
            newest = newest[int(begin[1:]) :]
        elif begin:
            newest = [record for record in newest if record.written_ms <= int(begin)]
        read = newest[:count]
        first = len(self.records) - len(newest)
        return SharedPage(read, f"({first + count}" if len(newest) > count else None)

    async def keep_policy(self, policy_hash: str, document: bytes) -> None:
        self._check()
        self.policies[policy_hash] = document

    async def read_policy(self, policy_hash: str) -> bytes | None:
        self._check()
        return self.policies.get(policy_hash)

    async def close(self) -> None: ...

    def _check(self) -> None:
        if self.error:
            raise StoreUnavailableError(*failure_of(self.error))
