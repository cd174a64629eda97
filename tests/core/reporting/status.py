"""Helpers of the `status` tests that other tests use, too."""

from typing import Any

from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overrides import Override, PartialModes
from webhook.core.policy.model import LoadedPolicy, Match, Modes, Policy, Pool, Service
from webhook.core.policy_fields import Breaker, Mode, Per, Quota, QuotaExceeded, Window
from webhook.core.quota import Holder, ServiceSnapshot, Use
from webhook.core.reporting.status import (
    OverridesStatus,
    ServerStatus,
    WatchStatus,
)
from webhook.core.reporting.status_parts import DecisionsStatus

NOW_US = 1_800_000_000_000_000


PAYMENT = Service(
    "payment-api",
    Match(namespaces=("payments",)),
    pool="prod",
    sla_class="gold",
    modes=Modes(quota=Mode.AUDIT),
    quota=Quota(windows=(Window(Duration.parse("1m"), {"pods": Quantity.parse("50"), "cpu": Quantity.parse("40")}),)),
    breaker=Breaker(quota_exceeded=QuotaExceeded()),
)


LEDGER = Service(
    "ledger",
    Match(namespaces=("team-*",)),
    quota=Quota(per=Per.NAMESPACE, windows=(Window(Duration.parse("24h"), {"memory": Quantity.parse("16Gi")}),)),
)


WEB = Service("web", Match(namespaces=("web",)))


PROD = Pool("prod", (Window(Duration.parse("1m"), {"pods": Quantity.parse("300"), "cpu": Quantity.parse("1k")}),))


LOADED = LoadedPolicy(
    Policy("podgate.io/v1alpha1", "Policy", (PAYMENT, LEDGER, WEB), pools=(PROD,)), "0123456789abcdef"
)


OPEN = BreakerView(
    State.OPEN,
    generation=4,
    since_us=NOW_US - 29_000_000,
    open_until_us=NOW_US + 150_500_000,
    reason="quotaExceeded: 10 within 1m",
    tripped_at_us=NOW_US - 29_000_000,
    tripped_by="quotaExceeded: 10 within 1m",
    early=2,
    failed=("controller:r1",),
)


SNAPSHOTS = {
    "payment-api": ServiceSnapshot(
        NOW_US,
        {"": (Use("1m", "pods", 50, 50, free_at_us=NOW_US + 12_000_001), Use("1m", "cpu", 1500, 40_000))},
        OPEN,
        (
            Use("1m", "pods", 300, 300, free_at_us=NOW_US + 2_000_000, of=Holder.POOL, name="prod"),
            Use("1m", "cpu", 250_500, 1_000_000, of=Holder.POOL, name="prod"),
        ),
    ),
    "ledger": ServiceSnapshot(NOW_US),
}


def snapshot(**changes: Any) -> ServerStatus:
    arguments: dict[str, Any] = {
        "version": "0.1.0",
        "now_us": NOW_US,
        "wall_us": NOW_US,
        "last_review_us": NOW_US - 2_750_000,
        "source": "p.yaml",
        "policy": LOADED,
        "loaded_at_us": NOW_US - 60_000_000,
        "plans": CompiledPolicy(LOADED).plans,
        "snapshots": SNAPSHOTS,
        "watches": {"namespaces": WatchStatus(), "configmaps": WatchStatus(NOW_US - 5_000_000, "cut")},
        "certificates": {"serving": NOW_US + 7 * 86_400_000_000 - 1},
        "files": {"key set": "jwks.json: no JSON", "certificates": ""},
        "client_identity": "mutual",
    }
    return ServerStatus(**(arguments | {"decisions": DecisionsStatus(7)} | changes))


OVERRIDES = OverridesStatus(
    "configmap podgate-system/podgate-overrides",
    ["o.yaml:2:3: [1].until: (absent): required: add until"],
    {
        "payment-api": (Override("payment-api", "2027-01-15T08:10:00Z", "INC-1", quota_factor=Quantity.parse("1.5")),),
        "gone": (Override("gone", "2027-01-15T09:00:00Z", "INC-2", modes=PartialModes(quota=Mode.AUDIT)),),
    },
)
