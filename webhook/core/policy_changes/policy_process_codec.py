"""Codec of the requests and results of a policy check in another process, as MessagePack."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from webhook.core.document import DocumentError, LoadResult, Problem, Purpose, load
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview

T = TypeVar("T")


class _Head(Struct, frozen=True):
    """A valid policy without its services."""

    policy: Policy
    hash: str
    warnings: tuple[Problem, ...]


class CheckResult(Struct, frozen=True):
    """The result of `load`, or the problems that it raises.

    Each service is encoded by itself, so that the receiver of a thousand can handle reviews in between.
    """

    head: _Head | None = None
    services: tuple[Raw, ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def from_loaded(cls, loaded: LoadResult) -> "CheckResult":
        policy = loaded.policy.policy
        head = _Head(msgspec.structs.replace(policy, services=()), loaded.policy.hash, loaded.warnings)
        return cls(head, tuple(Raw(_encoder.encode(service)) for service in policy.services))

    def build_result(self, services: Iterable[Service]) -> LoadResult:
        """Return or raise as `load` does, with the decoded `services`."""
        if self.head is None:
            raise DocumentError(self.problems)
        policy = msgspec.structs.replace(self.head.policy, services=tuple(services))
        return LoadResult(LoadedPolicy(policy, self.head.hash), self.head.warnings)


def check_policy(raw: bytes, purpose: Purpose) -> CheckResult:
    """Load a document and return the result."""
    try:
        return CheckResult.from_loaded(load(raw, purpose))
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
