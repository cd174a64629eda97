"""The keys of a service: podgate:{TAG}:v1:CLUSTER:KIND:NAME[:NAMESPACE]. One tag is one slot of a Redis Cluster."""

from webhook.core.quota import CounterPlan


class Keys:
    """Keys within one cluster's part of a Redis."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def ring(self, plan: CounterPlan, namespace: str = "") -> str:
        """Return the service's own hash, or that of one namespace where each counts apart."""
        own = self._key(plan, "ring", plan.service)
        return f"{own}:{namespace}" if namespace else own

    def breaker(self, plan: CounterPlan) -> str:
        return self._key(plan, "brk", plan.service)

    def pod(self, plan: CounterPlan, uid: str) -> str:
        return self._key(plan, "pod", uid)

    def all_of_cluster(self) -> str:
        """Return the pattern that all of them fit."""
        return f"podgate:{{*}}:v1:{self._cluster}:*"

    def _key(self, plan: CounterPlan, kind: str, name: str) -> str:
        return f"podgate:{{{plan.tag}}}:v1:{self._cluster}:{kind}:{name}"
