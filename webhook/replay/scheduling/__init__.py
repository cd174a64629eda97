"""Scheduling in virtual time: Pods on simulated nodes, by the extender's own code and a model of kube-scheduler."""
