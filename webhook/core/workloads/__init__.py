"""Simulation of Kubernetes' built-in controllers: the first Pod that each creates from a workload object."""

from webhook.core.workloads.simulate import SimulatedPod, simulate
from webhook.core.workloads.slot_range import SlotRange, find_slot_range

__all__ = ["SimulatedPod", "SlotRange", "find_slot_range", "simulate"]
