"""Redis keys of a service: podgate:{TAG}:v1:CLUSTER:KIND:NAME[:NAMESPACE]. A tag is one slot of a Redis Cluster."""

from dataclasses import dataclass

from webhook.core.quota import CounterPlan

_FLEET = "fleet"
"""The CLUSTER of counters that all clusters share: no cluster may have this name."""


@dataclass(frozen=True, slots=True)
class PlanKeys:
    """The keys of one plan, computed once.

    `home` is the hash with the tag's clock and the pool's ring; without a pool it is the service's own ring. Where
    namespaces are counted separately, `ring` is also the index of those that have counts, and `live` of those that have
    live Pods. `pool_live` is the live Pods of the tag's pool. `waits` is the tag's: Pods that were admitted and not
    seen yet. `queue` is the service's gated Pods. `slots` precedes the uid of an owner whose Pods have slots.
    """

    home: str
    ring: str
    breaker: str
    pods: str
    waits: str
    live: str
    queue: str
    slots: str
    pool_live: str

    @classmethod
    def from_plan(cls, cluster: str, plan: CounterPlan, service: str, *, fleet: bool) -> "PlanKeys":
        """Return the keys of a service of the plan's tag."""
        tag = f"podgate:{{{plan.tag}}}:v1"
        counted = f"{tag}:{_FLEET if fleet else cluster}"
        ring = f"{counted}:ring:{service}"
        home = f"{counted}:pool:{plan.pool.name}" if plan.pool else ring
        own = f"{tag}:{cluster}"
        waits, live = f"{own}:pending:{plan.tag}", f"{counted}:live:{service}"
        queue, slots = f"{own}:q:{service}", f"{own}:slots:{service}:"
        pool_live = f"{counted}:poollive:{plan.tag}"
        breaker, pods = f"{own}:brk:{service}", f"{own}:pod:"
        return cls(home, ring, breaker, pods, waits, live, queue, slots, pool_live=pool_live)

    def ring_of(self, scope: str) -> str:
        """Return the service's ring, or that of one namespace if each is counted separately."""
        return f"{self.ring}:{scope}" if scope else self.ring

    def live_of(self, scope: str) -> str:
        """Return the service's live Pods, or those of one namespace if each is counted separately."""
        return f"{self.live}:{scope}" if scope else self.live

    def pod(self, uid: str) -> str:
        return self.pods + uid


def tag_of(key: str) -> str:
    """Return the tag of a key that has one."""
    return key.partition("{")[2].partition("}")[0]


def all_of(cluster: str) -> str:
    """Return the pattern of all keys of a cluster, with a tag or without, but for the counters that clusters share."""
    return f"podgate:*v1:{cluster}:*"


def channel_of(cluster: str) -> str:
    """Return the channel on which the script publishes the transitions of a cluster's breakers."""
    return f"podgate:v1:{cluster}:breakers"


def probe_key(cluster: str, tag: str) -> str:
    """Return the key that a probe writes."""
    return f"podgate:{{{tag}}}:v1:{cluster}:probe"


def decisions_of(cluster: str) -> str:
    """Return the key of the stream with a cluster's decision records."""
    return f"podgate:v1:{cluster}:decisions"


def policy_of(cluster: str, policy_hash: str) -> str:
    """Return the key of a policy document."""
    return f"podgate:v1:{cluster}:policy:{policy_hash}"


def rollout_of(cluster: str, policy_hash: str, bucket: int) -> str:
    """Return the key of the counts of decisions by one policy in ten seconds."""
    return f"podgate:{{{policy_hash}}}:v1:{cluster}:rollout:{bucket}"
