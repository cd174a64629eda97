"""What whoever watches Pods tells a store, and hears."""

from msgspec import Struct

from webhook.core.quota.amounts import Cost


class Sighting(Struct, frozen=True):
    """One Pod as the watch shows it.

    `lives`: it counts as ResourceQuota counts. `created_at_us`: it is charged afterwards, at that time, if the store
    does not know it; 0 for never. `is_sure`: the policy makes the service its owner; else the store's word is needed.
    """

    namespace: str
    name: str
    uid: str
    cost: Cost
    lives: bool
    created_at_us: int = 0
    is_sure: bool = True


class Seen(Struct, frozen=True):
    """What a sighting changed.

    `charged`: nobody had charged it. `raised`: it takes more than it was ever charged for, which is charged now.
    `changed`: what stands was not so before. `ignored`: the store does not know it, and its owner is not sure.
    """

    charged: bool = False
    raised: bool = False
    changed: bool = False
    ignored: bool = False


class UnseenPod(Struct, frozen=True):
    """A Pod that was charged and has not been seen since; all but uid and age are "" where nobody knows them."""

    uid: str
    namespace: str
    name: str
    age_us: int
    service: str = ""
