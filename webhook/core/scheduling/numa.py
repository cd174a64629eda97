"""NUMA: whether a Pod's containers fit into single zones of a node, as its Topology Manager will decide.

Source: NodeResourceTopology of scheduler-plugins (topology.node.k8s.io/v1alpha2), whose filter it follows: only the
policy single-numa-node refuses Pods, by container or by Pod. Of Pods that are not Guaranteed only devices are bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from webhook.core.container_resources.qos import find_qos_class
from webhook.core.kubernetes import pod_requests
from webhook.core.kubernetes.pod import Container, Pod, Resources
from webhook.core.policy_fields import QosClass
from webhook.core.scheduling.pod_fingerprint import PodFingerprint

Amounts = Mapping[str, int]
"""Resource name to amount, in billionths of its unit."""


class NumaZones(Struct, frozen=True, gc=False):
    """Zones of a node, the lowest first, with what is available in each."""

    zones: tuple[Amounts, ...]
    is_by_pod: bool
    """The Topology Manager's scope is `pod`: all containers go into one zone."""
    whole: "NumaZones | None" = None
    """What Pods may take of each zone in all; None if that is not known."""
    fingerprint: PodFingerprint | None = None
    """Of the Pods with which a report was made, None if it does not say."""

    @property
    def resources(self) -> set[str]:
        """Names of the resources that the zones have. Others are not bound to zones, and are ignored."""
        return {name for zone in self.zones for name in zone}

    def subtract(self, taken: Amounts) -> "NumaZones":
        """Return the zones after subtracting what new Pods take from every zone.

        Until the next report the zone of a new Pod is unknown: it is subtracted from all of them.
        """
        left = tuple([_subtract_amounts(zone, taken) for zone in self.zones])
        return NumaZones(left, self.is_by_pod, self.whole)


def is_guaranteed(pod: Pod) -> bool:
    """Return whether a Pod is of the QoS class Guaranteed: only its cpus are bound to zones."""
    return find_qos_class(pod) is QosClass.GUARANTEED


def sum_requests(pod: Pod) -> Amounts:
    """Return what a Pod asks for in all, by resource."""
    names = {name for container in _list_containers(pod) for name in (_read_requests(container) or ())}
    return {name: pod_requests.compute_total(pod, "requests", name) for name in names}


def compute_zone_share(pod: Pod) -> Amounts | None:
    """Return what a Pod takes of its zone, None if it is bound to none."""
    if is_guaranteed(pod):
        return sum_requests(pod)
    if not any(map(_has_devices, _list_containers(pod))):
        return None
    return _select_devices(sum_requests(pod)) or None


class _ContainerDemand(NamedTuple):
    amounts: Amounts
    stays: bool
    """False for init containers other than sidecars: they run alone, and leave their zone to the next container."""


class NumaDemand(Struct, frozen=True):
    """What a Pod asks of zones: by container in the order of their start, and in all; `total` is empty for nothing."""

    containers: tuple[_ContainerDemand, ...]
    total: Amounts

    @classmethod
    def from_pod(cls, pod: Pod) -> "NumaDemand":
        starting = [
            _ContainerDemand(_list_amounts(container), pod_requests.is_sidecar(container))
            for container in pod.spec.init_containers or ()
        ]
        running = [_ContainerDemand(_list_amounts(container), stays=True) for container in pod.spec.containers or ()]
        containers = (*starting, *running)
        if is_guaranteed(pod):
            return cls(containers, sum_requests(pod))
        bound = (_ContainerDemand(_select_devices(amounts), stays) for amounts, stays in containers)
        return cls(tuple(demand for demand in bound if demand.amounts), compute_zone_share(pod) or {})

    def fits(self, numa: NumaZones) -> bool:
        """Return whether the Pod fits into single zones."""
        alone = self.total if numa.is_by_pod else self.containers[0].amounts if len(self.containers) == 1 else None
        if alone is not None and _find_zone(alone, numa.zones) is not None:
            return True  # the usual case: resources without zones need not be left out
        return self.fill_zones(numa) is not None

    def is_too_large(self, numa: NumaZones) -> bool:
        """Return whether the Pod would not even fit into the zones if they were free."""
        return numa.whole is not None and not self.fits(numa.whole)

    def find_shortage(self, numa: NumaZones) -> "ZoneShortage | None":
        """Return what no zone holds, None if the Pod fits."""
        found = self._place_containers(numa)
        return found if isinstance(found, ZoneShortage) else None

    def fill_zones(self, numa: NumaZones) -> NumaZones | None:
        """Return what is left with each container in the lowest zone that holds it; None if the Pod does not fit."""
        found = self._place_containers(numa)
        return found if isinstance(found, NumaZones) else None

    def _place_containers(self, numa: NumaZones) -> "NumaZones | ZoneShortage":
        resources, zones = numa.resources, list(numa.zones)
        for amounts, stays in (_ContainerDemand(self.total, stays=True),) if numa.is_by_pod else self.containers:
            asked = _select_resources(amounts, resources)
            zone = _find_zone(asked, zones)
            if zone is None:
                return ZoneShortage(asked, tuple({name: free.get(name, 0) for name in asked} for free in zones))
            if stays:
                zones[zone] = _subtract_amounts(zones[zone], asked)
        return NumaZones(tuple(zones), numa.is_by_pod, numa.whole)


class ZoneShortage(NamedTuple):
    """What a Pod, or the first container that no zone holds, asks of one zone, and what is free in each by then."""

    asked: Amounts
    free: tuple[Amounts, ...]


def _find_zone(asked: Amounts, zones: Sequence[Amounts]) -> int | None:
    """Return the lowest zone that holds all that is asked for, None if there is none."""
    for index, zone in enumerate(zones):
        for name, amount in asked.items():
            if zone.get(name, 0) < amount:
                break
        else:
            return index
    return None


def _subtract_amounts(zone: Amounts, amounts: Amounts) -> Amounts:
    return {name: max(0, amount - amounts.get(name, 0)) for name, amount in zone.items()}


def _select_resources(amounts: Amounts, resources: set[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in resources}


def _select_devices(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if _is_device(name) and amount}


def _is_device(name: str) -> bool:
    """Return whether a resource is an extended one, whose devices a zone has. Native ones have no domain."""
    return "/" in name


def _has_devices(container: Container) -> bool:
    resources = container.resources
    return resources is not None and any(map(_is_device, (*(resources.requests or ()), *(resources.limits or ()))))


def _list_amounts(container: Container) -> Amounts:
    return {name: amount for name, amount in (_read_requests(container) or {}).items() if amount}


def _read_requests(container: Container) -> Amounts | None:
    resources = container.resources
    if resources is None:
        return None
    names = {*(resources.requests or ()), *(resources.limits or ())}
    return {name: _read_request(resources, name) for name in names}


def _read_request(resources: Resources, name: str) -> int:
    """Return a container's request; an absent one is its limit."""
    asked = pod_requests.read_amount(resources.requests, name)
    return (pod_requests.read_amount(resources.limits, name) or 0) if asked is None else asked


def _list_containers(pod: Pod) -> Iterable[Container]:
    return (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
