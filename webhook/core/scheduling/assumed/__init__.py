"""Load that is assumed of Pods which are not measured yet: how much, and on which nodes."""
