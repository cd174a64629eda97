"""Extender API of kube-scheduler: its requests and answers on the wire.

Keys are Go field names, because k8s.io/kube-scheduler/extender/v1 declares no others. With `nodeCacheCapable` nodes are
names, never whole objects.
"""

from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from webhook.core.json_depth import UNREADABLE_JSON, decode_foreign
from webhook.core.kubernetes.pod import Pod

_T = TypeVar("_T")


class CallResult(StrEnum):
    """Result of a call."""

    ANSWERED = "answered"
    NOT_READY = "not_ready"
    """Nodes and Pods are not listed yet."""
    BAD_REQUEST = "bad_request"
    FAILED = "failed"
    """By a defect."""


class BadExtenderRequestError(Exception):
    """A body that is no request of the extender API."""


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    """Request of `filter` and `prioritize`."""

    pod: Pod
    node_names: tuple[str, ...] | None = None


class FilterResult(Struct, frozen=True, rename="pascal", omit_defaults=True):
    """`failed_and_unresolvable_nodes`: preemption there would be in vain. `error` fails the Pod, and users see it."""

    node_names: tuple[str, ...] = ()
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, frozen=True, gc=False, rename="pascal"):
    """`score` is an integer: one float makes the scheduler drop the whole answer without a word."""

    host: str
    score: int


class _MetaPod(Struct, frozen=True, gc=False):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(Struct, frozen=True):
    """Pods that preemption would evict from one node, as they came: only whole entries are dropped."""

    pods: msgspec.Raw = msgspec.field(name="Pods", default=msgspec.Raw(b"null"))
    violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def list_uids(self) -> tuple[str, ...]:
        """Return the uids of the Pods. BadExtenderRequestError: they are no list of Pods."""
        pods = [] if bytes(self.pods) == b"null" else decode(self.pods, list[_MetaPod])
        return tuple([pod.uid for pod in pods])


class PreemptionArgs(Struct, frozen=True):
    """Request of `preempt`. With `nodeCacheCapable` victims are uids."""

    pod: Pod = msgspec.field(name="Pod")
    victims: dict[str, MetaVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class PreemptionResult(Struct, frozen=True):
    victims: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


def decode(body: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return a request. BadExtenderRequestError: it is not understood."""
    try:
        return decode_foreign(body, kind)
    except UNREADABLE_JSON as error:
        raise BadExtenderRequestError(f"not a request of the extender API: {error}") from error


def read_node_names(args: ExtenderArgs) -> tuple[str, ...]:
    """Return the node names. BadExtenderRequestError: the scheduler sent whole nodes."""
    if args.node_names is None:
        raise BadExtenderRequestError("no NodeNames: set nodeCacheCapable: true for this extender")
    return args.node_names
