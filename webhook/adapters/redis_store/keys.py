"""The keys of a service: podgate:{TAG}:v1:CLUSTER:KIND:NAME[:NAMESPACE]. One tag is one slot of a Redis Cluster."""

from dataclasses import dataclass

from webhook.core.quota import CounterPlan

_FLEET = "fleet"
"""Stands for all clusters: no cluster may be called so."""


@dataclass(frozen=True, slots=True)
class PlanKeys:
    """The keys of one plan, worked out once.

    `home` is the hash with the tag's clock and the pool's ring; without a pool it is the service's own ring. Where
    namespaces count apart, that is also the index of those in which anything counts. `waits` is the tag's: who was let
    in and has not been seen; `live` is the service's live Pods, and the index of namespaces that have any.
    """

    home: str
    ring: str
    breaker: str
    pods: str
    waits: str
    live: str

    @classmethod
    def of(cls, cluster: str, plan: CounterPlan, service: str, *, fleet: bool) -> "PlanKeys":
        """Return those of a service of the plan's tag."""
        tag = f"podgate:{{{plan.tag}}}:v1"
        counted = f"{tag}:{_FLEET if fleet else cluster}"
        ring = f"{counted}:ring:{service}"
        home = f"{counted}:pool:{plan.pool.name}" if plan.pool else ring
        own = f"{tag}:{cluster}"
        waits, live = f"{own}:pending:{plan.tag}", f"{counted}:live:{service}"
        return cls(home, ring, f"{own}:brk:{service}", f"{own}:pod:", waits, live)

    def ring_of(self, scope: str) -> str:
        """Return the service's own ring, or that of one namespace where each counts apart."""
        return f"{self.ring}:{scope}" if scope else self.ring

    def live_of(self, scope: str) -> str:
        """Return the service's live Pods, or those of one namespace where each counts apart."""
        return f"{self.live}:{scope}" if scope else self.live

    def pod(self, uid: str) -> str:
        return self.pods + uid


def all_of(cluster: str) -> str:
    """Return the pattern that all keys of a cluster fit; what the fleet counts is everybody's."""
    return f"podgate:{{*}}:v1:{cluster}:*"


def channel_of(cluster: str) -> str:
    """Return the channel on which a cluster's breakers tell that they have moved."""
    return f"podgate:v1:{cluster}:breakers"
