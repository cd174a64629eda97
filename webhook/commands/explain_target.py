"""Objects that `podgate explain` is asked about: pod NS/NAME, deploy/NAME, or a uid."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PODS = frozenset({"pod", "pods", "po"})
_SHORT = {
    "deploy": "Deployment",
    "rs": "ReplicaSet",
    "sts": "StatefulSet",
    "ds": "DaemonSet",
    "cj": "CronJob",
    "rc": "ReplicationController",
}
_KINDS = {alias: kind for kind in WORKLOAD_KINDS for alias in (kind.kind.lower(), kind.resource)} | {
    alias: kind for alias, name in _SHORT.items() for kind in WORKLOAD_KINDS if kind.kind == name
}
_REMEDY = "write pod NAME, pod NAMESPACE/NAME, deploy/NAME, job/NAME, or a Pod's uid"


class ExplainTarget(Struct, frozen=True):
    """One object; `kind` is None for a Pod. A target given by uid has neither namespace nor name."""

    namespace: str = ""
    name: str = ""
    kind: WorkloadKind | None = None
    uid: str = ""

    def __str__(self) -> str:
        if self.uid:
            return f"uid {self.uid}"
        return f"{'pod' if self.kind is None else self.kind.shown} {self.namespace}/{self.name}"


def parse_pod(text: str) -> tuple[str, str]:
    """Return namespace and name of NAMESPACE/POD. UserError: it is none."""
    namespace, _, name = text.partition("/")
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):  # they become parts of an address
        raise UserError(f"{text!r}: not NAMESPACE/POD", "write for example shop/web-x7")
    return namespace, name


def parse_target(words: Sequence[str], namespace: str) -> ExplainTarget:
    """Parse the arguments as kubectl does; `namespace` applies to a name without one. UserError: not understood."""
    if len(words) == 1 and _UID.fullmatch(words[0]):
        return ExplainTarget(uid=words[0])
    given = " ".join(words)
    if len(words) == 1:
        kind, slash, name = words[0].partition("/")
        if not slash:
            kind, name = "pod", words[0]
    elif len(words) == 2:  # noqa: PLR2004  a kind and a name
        kind, name = words
    else:
        raise UserError(f"{given!r}: {len(words)} arguments", _REMEDY)
    source = None if kind in _PODS else _KINDS.get(kind.lower().partition(".")[0])
    if source is None and kind not in _PODS:
        raise UserError(f"{given!r}: {kind!r} is no kind of workload", _REMEDY)
    of_namespace, slash, own = name.partition("/")
    found = ExplainTarget(of_namespace, own, source) if slash else ExplainTarget(namespace, name, source)
    for text in (found.namespace, found.name):
        if not _NAME.fullmatch(text):
            raise UserError(f"{given!r}: {text!r} is no name of an object", _REMEDY)
    return found


@dataclass(frozen=True, slots=True)
class ExplainInputs:
    """The object to explain, and the sources to read: a file of records alone, or a cluster and a server's records.

    With `at_us`, only decisions up to that time count, and the cluster is not read.
    """

    target: ExplainTarget
    kubeconfig: Kubeconfig
    server: str | None = None
    records: Path | None = None
    policy: Path | None = None
    at_us: int | None = None
    leader: str | None = None
    """URL of the plain port of the process that releases Pods."""
    extender: str | None = None
    """URL of an extender's decision port."""
    status: str | None = None
    """URL of a server's plain port, for the breakers of variants."""
