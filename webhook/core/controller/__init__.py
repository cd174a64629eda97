"""Decisions of the controller: the order in which waiting Pods are released, and the controllers to wake."""
