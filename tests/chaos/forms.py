"""The forms of a run: which programs it has, and which kinds of faults it draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.chaos.extended_scheduler import EXTENDERS, SCHEDULER
from tests.chaos.fault_kinds import KINDS, LONG_KINDS, FaultKind
from tests.chaos.plane import API_SERVERS
from tests.chaos.schedule import list_links
from tests.chaos.shards import SHARDS

REPLICAS, SENTINELS = 2, 3
SERVERS = tuple(f"server-{number}" for number in range(1, REPLICAS + 1))
CONTROLLERS = tuple(f"controller-{number}" for number in range(1, REPLICAS + 1))
PODGATE = (*SERVERS, *CONTROLLERS, *EXTENDERS)
LONG_SECONDS = 600.0
"""From this length on a run has the long form, unless another one is asked for."""


@dataclass(frozen=True)
class Form:
    """The same programs of Podgate and of Kubernetes in each form; the stores below them differ."""

    name: str
    etcd_members: int = 1
    has_small_disks: bool = False
    is_cluster: bool = False
    """Whether the store is a Redis Cluster, in place of Sentinels."""
    kinds: Sequence[FaultKind] = KINDS

    @property
    def etcds(self) -> Sequence[str]:
        """Names of the members of etcd; a lone one is `etcd`, which otherwise means all of them."""
        if self.etcd_members == 1:
            return ("etcd",)
        return tuple(f"etcd-{number}" for number in range(1, self.etcd_members + 1))

    @property
    def stores(self) -> Sequence[str]:
        """Names of all Redis."""
        return tuple(f"redis-{number}" for number in range(1, 2 * (SHARDS if self.is_cluster else 1) + 1))

    @property
    def sentinels(self) -> Sequence[str]:
        return () if self.is_cluster else tuple(f"sentinel-{number}" for number in range(1, SENTINELS + 1))

    @property
    def parts(self) -> Mapping[str, str]:
        """All parts of a run, by name, with their kinds. Schedules depend on their order."""
        api_servers = ("kube-apiserver", *(f"kube-apiserver-{number}" for number in range(2, API_SERVERS + 1)))
        return {
            **dict.fromkeys(SERVERS, "server"),
            **dict.fromkeys(CONTROLLERS, "controller"),
            **dict.fromkeys(EXTENDERS, "extender"),
            **dict.fromkeys(self.stores, "redis"),
            **dict.fromkeys(self.sentinels, "sentinel"),
            **dict.fromkeys(self.etcds, "etcd"),
            **dict.fromkeys(api_servers, "kube-apiserver"),
            **dict.fromkeys(("kube-scheduler", SCHEDULER), "kube-scheduler"),
            **{name: name for name in ("kube-controller-manager", "kwok")},
        }

    @property
    def links(self) -> Sequence[str]:
        return list_links(self.parts)


SHORT = Form("short")
LONG = Form("long", etcd_members=3, has_small_disks=True, kinds=LONG_KINDS)
LONG_CLUSTER = Form("long-cluster", etcd_members=3, has_small_disks=True, is_cluster=True, kinds=LONG_KINDS)
FORMS: Mapping[str, Form] = {form.name: form for form in (SHORT, LONG, LONG_CLUSTER)}


def choose_form(seed: int, seconds: float, name: str | None = None) -> Form:
    """Return the form of that name, and else that of a run of this length: the seed chooses between the long ones."""
    if name:
        return FORMS[name]
    if seconds < LONG_SECONDS:
        return SHORT
    return Random(f"{seed} form").choice([LONG, LONG_CLUSTER])  # noqa: S311  the same form again
