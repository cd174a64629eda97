"""The kinds of faults: whom each can hit, for how long, and what is drawn beside. All of it by data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

PODGATE = ("server", "controller", "extender")
STORE = ("redis", "sentinel")
API = ("kube-apiserver",)
OTHERS = ("kube-scheduler", "kube-controller-manager", "kwok")
_CLOCKED = ("server", "controller", "redis")
"""Kinds of parts whose clocks a run can set."""

LINK = "link"
"""The target is a link: a pair of parts."""
CLUSTER = "cluster"
"""The target is no part: an object of the cluster, or all."""
ALL_ETCD = "all of etcd"
"""The target is etcd as a whole: all its members, or what leads them."""


def _draw_nothing(_: Random) -> Mapping[str, Any]:
    return {}


def _draw_delay(random: Random) -> Mapping[str, Any]:
    return {"delay_seconds": round(random.choice([0.02, 0.1, 0.4, 1.0]) * random.uniform(0.5, 1.5), 3)}


def _draw_loss(random: Random) -> Mapping[str, Any]:
    return {"loss": round(random.uniform(0.05, 0.4), 2)}


def _draw_step(random: Random) -> Mapping[str, Any]:
    return {"step_seconds": random.choice([-1, 1]) * random.choice([1, 3, 10, 60])}


def _draw_account(random: Random) -> Mapping[str, Any]:
    return {"account": random.choice(["podgate", "podgate-controller", "podgate-extender"])}


def _draw_service(random: Random) -> Mapping[str, Any]:
    return {"namespace": f"chaos-{random.choice(['shop', 'jobs', 'store', 'spot', 'risky'])}"}


@dataclass(frozen=True)
class FaultKind:
    """`targets` are kinds of parts, LINK or CLUSTER. `seconds` is None if it is over at once."""

    name: str
    family: str
    targets: Sequence[str]
    seconds: tuple[float, float] | None = None
    draw: Callable[[Random], Mapping[str, Any]] = _draw_nothing


KINDS: Sequence[FaultKind] = (
    FaultKind("kill", "process", (*PODGATE, *STORE, *API, *OTHERS), (0.2, 8)),
    FaultKind("kill", "process", ("etcd",), (0.2, 2)),
    FaultKind("pause", "process", (*PODGATE, *STORE, *API, *OTHERS), (0.3, 12)),
    FaultKind("restart", "process", (*PODGATE, *STORE, *API, *OTHERS)),
    FaultKind("delay", "network", (LINK,), (2, 15), _draw_delay),
    FaultKind("loss", "network", (LINK,), (2, 15), _draw_loss),
    FaultKind("cut", "network", (LINK,), (1, 12)),
    FaultKind("cut-requests", "network", (LINK,), (1, 12)),
    FaultKind("cut-answers", "network", (LINK,), (1, 12)),
    FaultKind("half-open", "network", (LINK,), (3, 20)),
    FaultKind("refuse", "network", (LINK,), (1, 10)),
    FaultKind("reset", "network", (LINK,)),
    FaultKind("clock-step", "clock", _CLOCKED, (5, 15), _draw_step),
    FaultKind("redis-memory-full", "redis", ("redis",), (2, 8)),
    FaultKind("redis-failover", "redis", (CLUSTER,)),
    FaultKind("redis-flush", "redis", (CLUSTER,)),
    FaultKind("redis-script-flush", "redis", ("redis",)),
    FaultKind("redis-old-snapshot", "redis", (CLUSTER,), (5, 20)),
    FaultKind("etcd-compaction", "cluster", (CLUSTER,)),
    FaultKind("lease-taken", "cluster", (CLUSTER,), (4, 8)),
    FaultKind("other-webhook-denies", "cluster", (CLUSTER,), (2, 8), _draw_service),
    FaultKind("right-removed", "cluster", (CLUSTER,), (2, 10), _draw_account),
    FaultKind("certificate-rotated", "identity", ("server",)),
    FaultKind("token-rotated", "identity", PODGATE),
    FaultKind("token-revoked", "identity", PODGATE, (2, 8)),
)
"""`redis-failover`, `-flush` and `-old-snapshot` hit what is the primary then."""

LONG_KINDS: Sequence[FaultKind] = (
    *(kind for kind in KINDS if "etcd" not in kind.targets),
    FaultKind("kill", "etcd", ("etcd",), (0.2, 8)),
    FaultKind("pause", "etcd", ("etcd",), (0.3, 12)),
    FaultKind("restart", "etcd", ("etcd",)),
    FaultKind("etcd-leader-kill", "etcd", (ALL_ETCD,), (0.2, 8)),
    FaultKind("redis-disk-full", "space", ("redis",), (3, 15)),
    FaultKind("etcd-no-space", "space", (ALL_ETCD,), (2, 12)),
)
"""Of long forms, which have several members of etcd, and a small disk for each Redis."""

EFFECTS = {
    "kill": "SIGKILL; started again at the end",
    "pause": "SIGSTOP, SIGCONT at the end",
    "restart": "SIGTERM, and started again",
    "delay": "each piece of data arrives later",
    "loss": "pieces arrive after a retransmission only",
    "cut": "nothing arrives in either direction, and nobody is told",
    "cut-requests": "what is asked does not arrive; answers do",
    "cut-answers": "what is asked arrives; answers do not",
    "half-open": "open connections are dead without a word; new ones work",
    "refuse": "open connections are reset, and new ones refused",
    "reset": "open connections are reset",
    "clock-step": "the wall clock steps within two seconds, and back at the end; the monotonic one goes on",
    "redis-memory-full": "CONFIG SET maxmemory to less than is used",
    "redis-failover": "SENTINEL FAILOVER, of a Cluster CLUSTER FAILOVER",
    "redis-flush": "FLUSHALL of the primary, of a Cluster of one",
    "redis-script-flush": "SCRIPT FLUSH",
    "redis-old-snapshot": "the primary is killed at the end, and starts with its files of the beginning",
    "redis-disk-full": "no room on its disk: it cannot write to its append-only file",
    "etcd-no-space": "the alarm NOSPACE, as beyond etcd's quota: objects can be read and deleted only",
    "etcd-leader-kill": "SIGKILL of the member that leads; started again at the end",
    "etcd-compaction": "compaction to the newest revision: older watches get 410",
    "lease-taken": "somebody else holds the controllers' Lease",
    "other-webhook-denies": "a ValidatingAdmissionPolicy denies each second Pod of a namespace",
    "right-removed": "the ClusterRoleBindings of a service account are deleted, and applied again at the end",
    "certificate-rotated": "a new serving certificate in the files of all servers",
    "token-rotated": "a new token in the part's kubeconfig",
    "token-revoked": "a token in the part's kubeconfig that nobody accepts; a good one at the end",
}
"""By kind, for people."""
