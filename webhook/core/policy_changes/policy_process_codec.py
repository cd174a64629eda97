"""Codec of the requests and results of a policy check in another process, as MessagePack."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.document import DocumentError, Problem, Purpose
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.core.document.changed_services import LoadedDocument, check_document
from webhook.core.document.service_facts import DocumentFacts
from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview

T = TypeVar("T")


class _Head(Struct, frozen=True):
    """A valid policy without its services."""

    policy: Policy
    hash: str


class CheckResult(Struct, frozen=True):
    """A valid document as `check_document` returns it, or the problems that it raises.

    Each service is encoded by itself, so that the receiver of a thousand can handle reviews in between. Those that the
    document before has, too, are only named by their `places` in it. The receiver returns the `facts` with the next
    document.
    """

    head: _Head | None = None
    places: tuple[int, ...] = ()
    services: tuple[Raw, ...] = ()
    facts: bytes = b""
    problems: tuple[Problem, ...] = ()

    @classmethod
    def from_checked(cls, checked: LoadedDocument) -> "CheckResult":
        return cls(
            _Head(checked.policy, checked.hash),
            checked.places,
            tuple(Raw(_encoder.encode(service)) for service in checked.services),
            b"" if checked.facts is None else _encoder.encode(checked.facts),
        )

    def build_result(self, services: Iterable[Service]) -> LoadedPolicy:
        """Return the policy with its `services`. DocumentError: it is invalid."""
        if self.head is None:
            raise DocumentError(self.problems)
        return LoadedPolicy(msgspec.structs.replace(self.head.policy, services=tuple(services)), self.head.hash)


def check_policy(raw: bytes, purpose: Purpose, facts: bytes = b"") -> CheckResult:
    """Check a document and return the result. `facts`: those of the result before, empty for none."""
    try:
        former = decode(facts, DocumentFacts) if facts else None
        return CheckResult.from_checked(check_document(raw, purpose, former))
    except DocumentError as error:
        return CheckResult(problems=error.problems)


def encode(value: CheckResult | DocumentReview | PolicyReview | AssemblyRequest | Assembly) -> bytes:
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """Decode what `encode` wrote. msgspec.MsgspecError: other data."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=convert_amount)


def decode_service(piece: Raw) -> Service:
    """Decode one service of a result. msgspec.MsgspecError: other data."""
    return _service.decode(piece)


_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_service = msgspec.msgpack.Decoder(Service, dec_hook=convert_amount)
