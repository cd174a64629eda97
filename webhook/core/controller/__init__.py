"""Decisions of the controller: the order in which waiting Pods are released, and which held controllers are woken."""
