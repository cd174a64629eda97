"""Objects that `podgate explain` is asked about: pod NS/NAME, deploy/NAME, jobset.jobset.x-k8s.io/NAME, or a uid."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.api_groups import guess_resource, is_built_in
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES
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
_KNOWN = {
    alias: group
    for group, kind in KNOWN_TEMPLATES
    for alias in (kind.lower(), guess_resource(kind))
    if alias not in _KINDS
}
"""API groups of the custom kinds whose names no kind of Kubernetes has, for those who leave the group out."""
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?\.")
_REMEDY = "write pod NAME, pod NAMESPACE/NAME, deploy/NAME, job/NAME, KIND.GROUP/NAME, or a Pod's uid"


class CustomKindName(NamedTuple):
    """A kind that is not Kubernetes' own, as people write it: `word` is its kind, resource or short name."""

    word: str
    group: str


class ExplainTarget(Struct, frozen=True):
    """One object: a Pod without `kind` and `custom`. A target given by uid has neither namespace nor name."""

    namespace: str = ""
    name: str = ""
    kind: WorkloadKind | None = None
    uid: str = ""
    custom: CustomKindName | None = None

    def __str__(self) -> str:
        return f"uid {self.uid}" if self.uid else f"{self.shown_kind} {self.namespace}/{self.name}"

    @property
    def is_pod(self) -> bool:
        return self.kind is None and self.custom is None

    @property
    def shown_kind(self) -> str:
        """The kind as kubectl writes it before a name."""
        if self.custom is not None:
            return f"{self.custom.word}.{self.custom.group}"
        return "pod" if self.kind is None else self.kind.shown


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
    target = _parse_kind(kind)
    if target is None:
        raise UserError(f"{given!r}: {kind!r} is no kind of workload", _REMEDY)
    of_namespace, slash, own = name.partition("/")
    found = (
        replace(target, namespace=of_namespace, name=own) if slash else replace(target, namespace=namespace, name=name)
    )
    for text in (found.namespace, found.name):
        if not _NAME.fullmatch(text):
            raise UserError(f"{given!r}: {text!r} is no name of an object", _REMEDY)
    return found


def _parse_kind(text: str) -> ExplainTarget | None:
    """Return a target of a kind, still without a name; None for what is no kind of a workload."""
    if text.lower() in _PODS:
        return ExplainTarget()
    word, _, rest = text.lower().partition(".")
    group, source = _VERSION.sub("", f"{rest}.", count=1).rstrip("."), _KINDS.get(word)
    if source is not None and group in {"", source.group}:
        return ExplainTarget(kind=source)
    group = group or _KNOWN.get(word, "")
    if is_built_in(group) or not (_NAME.fullmatch(word) and _NAME.fullmatch(group)):
        return None
    return ExplainTarget(custom=CustomKindName(word, group))


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
