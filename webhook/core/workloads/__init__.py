"""Simulation of Kubernetes' built-in controllers: the first Pod that each creates from a workload object."""

from webhook.core.workloads.simulate import SimulatedPod, simulate

__all__ = ["SimulatedPod", "simulate"]
