"""Virtual stages: the controller's parts in this process, on a virtual clock, with a history as of a whole cluster.

They take a second where a control plane takes minutes. Each is driven from a seed.
"""
