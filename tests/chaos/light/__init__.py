"""The light stage: two real servers over one real Redis, driven from a seed, and a history as that of a whole cluster.

There is no control plane. A driver does what the API server does: it calls both halves, stores the Pod if it is
admitted, and writes the audit events. It takes seconds where the whole takes minutes.
"""
