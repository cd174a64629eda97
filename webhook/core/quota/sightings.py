"""Sightings of Pods by the watch, and their effect in the store."""

from msgspec import Struct

from webhook.core.quota.amounts import Cost


class Sighting(Struct, frozen=True):
    """State of one Pod in the watch.

    `lives`: it counts as ResourceQuota counts. `created_at_us`: the time at which to charge it if the store does not
    know it; 0 for never. `is_sure`: the policy assigns it to the service; otherwise the store must know the Pod.
    """

    namespace: str
    name: str
    uid: str
    cost: Cost
    lives: bool
    created_at_us: int = 0
    is_sure: bool = True


class Seen(Struct, frozen=True):
    """Effect of a sighting.

    `charged`: it had not been charged before. `raised`: it uses more than its highest charge, and the increase is
    charged. `changed`: the live Pods changed. `ignored`: the store does not know it, and its service is not certain.
    """

    charged: bool = False
    raised: bool = False
    changed: bool = False
    ignored: bool = False


class UnseenPod(Struct, frozen=True):
    """A Pod that was charged and has not been seen since; unknown fields are ""."""

    uid: str
    namespace: str
    name: str
    age_us: int
    service: str = ""
