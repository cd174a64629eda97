"""Shares plan: the split of a service, and the breaker of each of its variants."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.breaker import BreakerOwner, BreakerPlan, Forcing
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode, Shares
from webhook.core.quota import CounterPlan
from webhook.core.shares.split import Split


class VariantPlan(Struct, frozen=True):
    """One variant. `counters` has its breaker; None for the last of the list, which nothing replaces."""

    name: str
    counters: CounterPlan | None = None


class SharesPlan(Struct, frozen=True):
    """The shares of one service; built once per policy."""

    split: Split
    variants: tuple[VariantPlan, ...]
    unschedulable_for_us: int
    rebalance: bool = False

    @classmethod
    def from_service(cls, service: Service, forcings: Mapping[str, Forcing]) -> "SharesPlan | None":
        """Return the plan of a service, None unless it enforces shares. `forcings`: by the names of breakers' plans."""
        shares = None if service.placement is None else service.placement.shares
        if shares is None or service.modes.placement is not Mode.ENFORCE:
            return None
        *others, last = shares.variants
        with_breaker = [
            VariantPlan(variant.name, _plan_counters(service, shares, variant.name, forcings)) for variant in others
        ]
        return cls(
            Split.from_shares(shares),
            (*with_breaker, VariantPlan(last.name)),
            shares.unschedulable_for.us,
            shares.rebalance,
        )

    def adopt_breakers(self, other: "SharesPlan | None") -> "SharesPlan":
        """Return the plan with the breakers of another one, where both have a variant with a breaker."""
        known = {variant.name: variant for variant in (other.variants if other is not None else ())}
        adopted = tuple(
            known[variant.name]
            if variant.counters is not None and variant.name in known and known[variant.name].counters is not None
            else variant
            for variant in self.variants
        )
        return replace(self, variants=adopted)

    def find(self, name: str) -> VariantPlan | None:
        """Return the variant of this name, None without."""
        return next((variant for variant in self.variants if variant.name == name), None)

    def choose_variant(self, slot: int, is_avoided: Callable[[VariantPlan], bool]) -> VariantPlan:
        """Return the variant for a Pod in a slot: the slot's own, or the next of the list that is not avoided.

        The last of the list is never avoided.
        """
        first = self.split.find_variant(slot)
        *possible, last = self.variants[first:]
        return next((variant for variant in possible if not is_avoided(variant)), last)


def _plan_counters(service: Service, shares: Shares, variant: str, forcings: Mapping[str, Forcing]) -> CounterPlan:
    """Return a plan without limits, whose breaker is the variant's. No service has its name: it contains a slash."""
    name = BreakerOwner(service.name, variant).name
    return CounterPlan(
        service=name,
        tag=service.tag,
        per_namespace=False,
        windows=(),
        quota_mode=Mode.DISABLED,
        breaker=BreakerPlan.for_variant(shares, forcings.get(name)),
        breaker_mode=Mode.ENFORCE,
    )
