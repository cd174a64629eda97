"""The status document and its page: the state of each service, and unknown values."""

from typing import Any

import click
import msgspec
import pytest
from msgspec.structs import replace

from tests.core.reporting.status import LOADED, NOW_US, OPEN, OVERRIDES, PAYMENT, PROD, snapshot
from webhook.commands.clients.status_client import select_service
from webhook.commands.pages.status_page import format_controller, format_rollout, format_status
from webhook.commands.pages.table import format_duration
from webhook.core.admission.denials import format_utc
from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import BreakerGuard, LoadedPolicy, Match, Policy, Service
from webhook.core.policy_fields import Quota, Schedule, Scope, StandingQuota
from webhook.core.quota import Holder, ServiceSnapshot, Use
from webhook.core.quota.scheduled_limits import apply_schedules
from webhook.core.reporting.queue_document import FailingPods, QueueDepth, WaitingGroups
from webhook.core.reporting.rollout_document import render_rollout
from webhook.core.reporting.status import (
    ControllerStatus,
    OverridesStatus,
    ReplicaAssignment,
    WatchStatus,
    WebhooksStatus,
    render_controller_status,
    render_server_status,
)
from webhook.core.reporting.status_parts import OverloadStatus, StoreStatus
from webhook.core.rollout.counting import ShadowTotals
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState, RolloutView

FLEET_POLICY = LoadedPolicy(
    Policy(
        "podgate.io/v1alpha1",
        "Policy",
        (
            replace(PAYMENT, quota=replace(PAYMENT.quota, scope=Scope.FLEET), breaker=None),
            Service("without-a-quota", Match(namespaces=("web",)), pool="prod"),
        ),
        pools=(replace(PROD, scope=Scope.FLEET),),
    ),
    "fedcba9876543210",
)
"""The second member of the pool has the later snapshot."""
FLEET_SNAPSHOTS = {
    name: ServiceSnapshot(
        at_us,
        {"": (Use("1m", "pods", 5, 50), Use("1m", "cpu", 0, 40_000))} if name == "payment-api" else {},
        None,
        (
            Use("1m", "pods", used, 300, of=Holder.POOL, name="prod"),
            Use("1m", "cpu", 1000, 1_000_000, of=Holder.POOL, name="prod"),
        ),
    )
    for name, at_us, used in (("payment-api", NOW_US, 8), ("without-a-quota", NOW_US + 1, 9))
}


def services(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {service["name"]: service for service in document["services"]}


def test_document_contains_the_whole_status() -> None:
    document = msgspec.json.decode(msgspec.json.encode(render_server_status(snapshot())))
    payment = services(document).pop("payment-api")
    assert {key: value for key, value in document.items() if key not in {"services", "pools"}} == {
        "version": "0.1.0",
        "time": "2027-01-15T08:00:00.000Z",
        "lastReviewAt": "2027-01-15T07:59:57.250Z",
        "clientIdentity": "mutual",
        "notReady": [],
        "policy": {
            "source": "p.yaml",
            "hash": "0123456789abcdef",
            "loadedAt": "2027-01-15T07:59:00.000Z",
            "errors": [],
        },
        "rollout": None,
        "overrides": {"source": None, "errors": [], "entries": []},
        "store": {
            "kind": "memory",
            "healthy": True,
            "error": None,
            "mode": None,
            "cluster": None,
            "database": 0,
            "servers": [],
            "serversError": None,
        },
        "replicas": {"count": 1, "ordinal": 0, "source": "default"},
        "watches": [
            {"resource": "configmaps", "lastContact": "2027-01-15T07:59:55.000Z", "error": "cut"},
            {"resource": "namespaces", "lastContact": None, "error": None},
        ],
        "certificates": [{"name": "serving", "notAfter": "2027-01-22T08:00:00.000Z", "daysLeft": 6}],
        "files": [{"name": "certificates", "error": None}, {"name": "key set", "error": "jwks.json: no JSON"}],
        "webhooks": None,
        "decisions": {"kept": 7, "written": None, "dropped": 0, "error": None},
        "overload": None,
        "queues": None,
        "breakerGuard": None,
    }
    assert payment == {
        "name": "payment-api",
        "slaClass": "gold",
        "pool": "prod",
        "scope": "Cluster",
        "failureMode": "Open",
        "modes": {"placement": "Enforce", "resources": "Enforce", "quota": "Audit", "breaker": "Enforce"},
        "schedule": None,
        "override": None,
        "exceptions": [],
        "shares": None,
        "known": True,
        "windows": [
            {
                "window": "1m",
                "resource": "pods",
                "namespace": None,
                "used": 50,
                "hard": 50,
                "full": True,
                "nextFree": "2027-01-15T08:00:12.001Z",
                "nextFreeSeconds": 13,
            },
            {
                "window": "1m",
                "resource": "cpu",
                "namespace": None,
                "used": "1500m",
                "hard": "40",
                "full": False,
                "nextFree": None,
                "nextFreeSeconds": 0,
            },
        ],
        "guaranteed": [],
        "breaker": {
            "state": "OPEN",
            "reason": "quotaExceeded: 10 within 1m",
            "since": "2027-01-15T07:59:31.000Z",
            "generation": 4,
            "trippedAt": "2027-01-15T07:59:31.000Z",
            "trippedBy": "quotaExceeded: 10 within 1m",
            "openUntil": "2027-01-15T08:02:30.500Z",
            "openRemainingSeconds": 151,
            "probes": {"leased": 0, "succeeded": 0, "needed": 3, "early": 2},
            "failed": ["controller:r1"],
        },
    }


LIVE = LoadedPolicy(
    Policy(
        "podgate.io/v1alpha1",
        "Policy",
        (
            Service(
                "web",
                Match(namespaces=("web",)),
                quota=Quota(
                    standing=StandingQuota({"pods": Quantity.parse("4"), "memory": Quantity.parse("4Gi")}, "25%")
                ),
            ),
        ),
    ),
    "0123456789abcdef",
)


def build_live_snapshots(pods: int, *, surge: int = 1, is_known: bool = True) -> dict[str, ServiceSnapshot]:
    pods_use = Use("standing", "pods", pods, 4, asked=1, of=Holder.STANDING, surge=surge)
    memory_use = Use("standing", "memory", 1 << 30, 4 << 30, asked=1, of=Holder.STANDING, surge=surge << 30)
    return {"web": ServiceSnapshot(NOW_US, {"": (pods_use, memory_use)}, is_standing_known=is_known)}


def list_live_rows(snapshots: dict[str, ServiceSnapshot]) -> list[dict[str, Any]]:
    document = render_server_status(snapshot(policy=LIVE, plans=CompiledPolicy(LIVE).plans, snapshots=snapshots))
    rows: list[dict[str, Any]] = services(document)["web"]["windows"]
    return rows


def test_live_pods_are_shown_with_surge_and_enforcement() -> None:
    [pods, memory] = list_live_rows(build_live_snapshots(5))
    assert pods == {
        "window": "standing",
        "resource": "pods",
        "namespace": None,
        "surge": 1,
        "enforced": True,
        "used": 5,
        "hard": 4,
        "full": True,
        "nextFree": None,
        "nextFreeSeconds": 0,
    }
    assert (memory["used"], memory["hard"], memory["surge"], memory["full"]) == ("1Gi", "4Gi", "1Gi", False)
    assert [row["full"] for row in list_live_rows(build_live_snapshots(4))] == [False, False], "surge is open"
    assert [row["full"] for row in list_live_rows(build_live_snapshots(4, surge=0))] == [True, False]
    assert [row["enforced"] for row in list_live_rows(build_live_snapshots(1, is_known=False))] == [False, False]


def test_live_pod_limits_are_shown_without_live_pods_and_without_a_snapshot() -> None:
    idle = list_live_rows({"web": ServiceSnapshot(NOW_US, is_standing_known=True)})
    assert [(row["used"], row["hard"], row["surge"], row["enforced"]) for row in idle] == [
        (0, 4, 1, True),
        ("0", "4Gi", "1Gi", True),
    ]
    unknown = list_live_rows({})
    assert [(row["used"], row["hard"], row["surge"], row["enforced"]) for row in unknown] == [
        (None, 4, None, None),
        (None, "4Gi", None, None),
    ]


def test_page_shows_surge_and_limits_that_are_not_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    arguments = {"policy": LIVE, "plans": CompiledPolicy(LIVE).plans}
    rows = [line.split() for line in render_page(**arguments, snapshots=build_live_snapshots(5)).splitlines()]
    assert ["web", "bronze", "-", "standing", "pods", "5", "4", "+1", "-"] in rows
    assert ["standing", "memory", "1Gi", "4Gi", "+1Gi", "now"] in rows
    rows = [line.split() for line in render_page(**arguments, snapshots=build_live_snapshots(5, surge=0)).splitlines()]
    assert ["web", "bronze", "-", "standing", "pods", "5", "4", "-"] in rows
    page_text = render_page(**arguments, snapshots=build_live_snapshots(5, is_known=False))
    assert page_text.count(" not enforced\n") == 2
    assert "web: limits on live Pods are not enforced: the live Pods are not known" in page_text


def test_services_are_in_the_order_of_the_policy() -> None:
    assert list(services(render_server_status(snapshot()))) == ["payment-api", "ledger", "web"]


def test_per_namespace_service_shows_limits_when_idle_and_namespaces_when_used() -> None:
    idle = services(render_server_status(snapshot()))["ledger"]["windows"]
    assert [(window["namespace"], window["used"], window["hard"]) for window in idle] == [(None, "0", "16Gi")]
    snapshots = {
        "ledger": ServiceSnapshot(
            NOW_US, {"team-b": (Use("24h", "memory", 1 << 30, 1 << 34),), "team-a": (Use("24h", "memory", 1, 1 << 34),)}
        )
    }
    busy = services(render_server_status(snapshot(snapshots=snapshots)))["ledger"]["windows"]
    assert [(window["namespace"], window["used"]) for window in busy] == [("team-a", "1"), ("team-b", "1Gi")]


def test_pool_usage_is_from_the_latest_snapshot_of_a_member() -> None:
    [pool] = render_server_status(
        snapshot(policy=FLEET_POLICY, plans=CompiledPolicy(FLEET_POLICY).plans, snapshots=FLEET_SNAPSHOTS)
    )["pools"]
    assert {key: value for key, value in pool.items() if key != "windows"} == {
        "name": "prod",
        "scope": "Fleet",
        "members": ["payment-api", "without-a-quota"],
        "known": True,
    }
    assert pool["windows"] == [
        {
            "window": "1m",
            "resource": "pods",
            "namespace": None,
            "used": 9,
            "hard": 300,
            "full": False,
            "nextFree": None,
            "nextFreeSeconds": 0,
        },
        {
            "window": "1m",
            "resource": "cpu",
            "namespace": None,
            "used": "1",
            "hard": "1000",
            "full": False,
            "nextFree": None,
            "nextFreeSeconds": 0,
        },
    ]


def test_unavailable_store_leaves_usage_unknown_and_limits_known() -> None:
    health = StoreStatus("redis", "no answer within 50ms", "Local since 07:59")
    document = render_server_status(snapshot(snapshots={}, store=health))
    assert document["store"] == {
        "kind": "redis",
        "healthy": False,
        "error": "no answer within 50ms",
        "mode": "Local since 07:59",
        "cluster": None,
        "database": 0,
        "servers": [],
        "serversError": None,
    }
    payment, [pool] = services(document)["payment-api"], document["pools"]
    assert (payment["known"], payment["breaker"], pool["known"]) == (False, None, False)
    unknown_usage = {"used": None, "full": None, "nextFree": None, "nextFreeSeconds": None}
    for window, hard in zip((*payment["windows"], *pool["windows"]), (50, "40", 300, "1000"), strict=True):
        assert window == {**window, **unknown_usage, "hard": hard}


def test_breaker_is_shown_while_usage_is_unknown() -> None:
    without_usage = {"payment-api": ServiceSnapshot(NOW_US, breaker=OPEN, has_usage=False)}
    without_breaker, with_breaker = (
        services(render_server_status(snapshot(snapshots=snapshots)))["payment-api"]
        for snapshots in ({}, without_usage)
    )
    assert {**with_breaker, "breaker": None} == without_breaker
    assert with_breaker["breaker"]["state"] == "OPEN"


def test_page_without_the_store_shows_question_marks_and_the_store_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    lines = render_page(
        snapshots={}, store=StoreStatus("redis", "no answer within 50ms", "Local since 07:59")
    ).splitlines()
    assert "store   redis: no answer within 50ms, Local since 07:59" in lines
    assert "payment-api  gold    unknown  1m      pods      ?     50    ?" in lines
    assert "prod  1m      pods      ?     300   ?" in lines


def test_page_marks_windows_with_fleet_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    text = render_page(policy=FLEET_POLICY, plans=CompiledPolicy(FLEET_POLICY).plans, snapshots=FLEET_SNAPSHOTS)
    assert "payment-api      gold    -        1m Fleet  pods      5     50    now" in text
    assert "prod  1m Fleet  pods      9     300   now" in text


def test_server_without_a_policy_shows_its_errors() -> None:
    document = render_server_status(
        snapshot(policy=None, loaded_at_us=None, plans={}, snapshots={}, errors=["p.yaml:3:1: services: missing"])
    )
    assert document["policy"] == {
        "source": "p.yaml",
        "hash": None,
        "loadedAt": None,
        "errors": ["p.yaml:3:1: services: missing"],
    }
    assert document["services"] == []


def test_replica_assignment_is_shown() -> None:
    document = render_server_status(snapshot(store=StoreStatus("redis"), replicas=ReplicaAssignment(3, 1, "leases")))
    assert document["replicas"] == {"count": 3, "ordinal": 1, "source": "leases"}
    assert "store   redis, for 3 servers: ok" in list(format_status(document))


def test_overrides_are_listed_and_shown_with_their_service() -> None:
    document = render_server_status(snapshot(overrides=OVERRIDES))
    assert document["overrides"]["source"] == OVERRIDES.source
    assert document["overrides"]["errors"] == OVERRIDES.errors
    gone, payment = document["overrides"]["entries"]
    assert gone == {
        "service": "gone",
        "modes": {"quota": "Audit"},
        "until": "2027-01-15T09:00:00Z",
        "remainingSeconds": 3600,
        "reason": "INC-2",
        "withoutEffect": ["no such service in the policy in force"],
    }
    override = services(document)["payment-api"]["override"]
    assert {"service": "payment-api", **override} == payment
    assert (override["quotaFactor"], override["withoutEffect"]) == ("1.5", [])
    assert services(document)["web"]["override"] is None


def test_page_shows_effect_end_and_reason_of_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    lines = render_page(overrides=OVERRIDES).splitlines()
    assert "overrides  2 in force, from configmap podgate-system/podgate-overrides" in lines
    assert "overrides rejected: o.yaml:2:3: [1].until: (absent): required: add until" in lines
    assert "payment-api: override quotaFactor: '1.5' until 2027-01-15T08:10:00Z (10m left): INC-1" in lines
    ends = "until 2027-01-15T09:00:00Z (1h left): INC-2; without effect: no such service in the policy in force"
    assert f"gone: override modes: {{quota: Audit}} {ends}" in lines


def test_the_schedule_in_force_is_shown_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    times = Schedule("night", "22:00", "06:00", "Europe/Berlin", factor=Quantity.parse("3"))
    web = replace(PAYMENT, quota=replace(PAYMENT.quota, schedules=(times,)))
    loaded = replace(LOADED, policy=replace(LOADED.policy, services=(web,)))
    shown = {}
    for hour in (0, 14):  # NOW_US is 09:00 in Berlin
        timed = apply_schedules(loaded, NOW_US + hour * 3_600_000_000)
        status = {"policy": timed, "plans": CompiledPolicy(timed).plans, "snapshots": {}}
        shown[hour] = services(render_server_status(snapshot(**status)))["payment-api"]
        assert f"payment-api: schedule: {shown[hour]['schedule']['text']}" in render_page(**status).splitlines()
    assert shown[14]["schedule"] == {
        "name": "night",
        "effect": "x3",
        "until": "2027-01-16T05:00:00.000Z",
        "next": None,
        "text": "night, x3, until 06:00 Europe/Berlin",
    }
    assert shown[0]["schedule"]["text"] == "none until Fri 22:00 Europe/Berlin, then night, x3"
    assert [limits["windows"][0]["hard"] for limits in shown.values()] == [50, 150]


def test_an_expired_certificate_has_negative_days_left() -> None:
    document = render_server_status(snapshot(certificates={"serving": NOW_US - 1}))
    assert document["certificates"][0]["daysLeft"] == -1


def test_days_left_use_the_wall_clock() -> None:
    document = render_server_status(snapshot(wall_us=NOW_US + 2 * 86_400_000_000))
    assert document["certificates"][0]["daysLeft"] == 4


def render_page(**changes: Any) -> str:
    document = msgspec.json.decode(msgspec.json.encode(render_server_status(snapshot(**changes))))
    return "\n".join(format_status(document))


def test_the_page_is_a_table_with_the_countdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    assert (
        render_page()
        == """\
podgate 0.1.0, 2027-01-15T08:00:00.000Z
policy  0123456789abcdef, loaded 2027-01-15T07:59:00.000Z from p.yaml
store   memory: ok
last review  2027-01-15T07:59:57.250Z
watch   configmaps: cut, last contact 2027-01-15T07:59:55.000Z
watch   namespaces: starting
certificate serving: 6 days left
key set rejected, the last valid one is used: jwks.json: no JSON

SERVICE      CLASS   BREAKER          WINDOW  RESOURCE  USED   HARD  NEXT FREE
payment-api  gold    OPEN 2m31s left  1m      pods      50     50    in 13s
                                      1m      cpu       1500m  40    now
ledger       bronze  -                24h     memory    0      16Gi  now
web          bronze  unknown          -

POOL  WINDOW  RESOURCE  USED     HARD  NEXT FREE
prod  1m      pods      300      300   in 2s
      1m      cpu       250500m  1000  now

payment-api: OPEN since 2027-01-15T07:59:31.000Z until 2027-01-15T08:02:30.500Z (generation 4): \
quotaExceeded: 10 within 1m; 2 may probe early
payment-api: quota Audit"""
    )


def test_colours_do_not_change_column_widths() -> None:
    text = render_page()
    assert "\x1b[31mOPEN\x1b[0m 2m31s left  1m" in text


def test_a_half_open_breaker_shows_its_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    view = BreakerView(State.HALF_OPEN, 5, NOW_US, probes_leased=2, probes_succeeded=1)
    assert "HALF_OPEN 1/3 probes" in render_page(snapshots={"payment-api": ServiceSnapshot(NOW_US, {}, view)})


def test_reopened_breaker_shows_its_first_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    reopened = replace(OPEN, reason="probe failed", tripped_at_us=NOW_US - 400_000_000, early=0, failed=())
    lines = render_page(snapshots={"payment-api": ServiceSnapshot(NOW_US, {}, reopened)}).splitlines()
    assert (
        "payment-api: OPEN since 2027-01-15T07:59:31.000Z until 2027-01-15T08:02:30.500Z (generation 4): probe failed;"
        " tripped at 2027-01-15T07:53:20.000Z by quotaExceeded: 10 within 1m"
    ) in lines


@pytest.mark.parametrize(
    ("state", "cell"), [(State.FORCED_OPEN, "FORCED_OPEN 2m31s left"), (State.FORCED_CLOSED, "FORCED_CLOSED")]
)
def test_forced_breaker_shows_its_end_and_reason(monkeypatch: pytest.MonkeyPatch, state: State, cell: str) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    forced = BreakerView(state, 5, NOW_US - 1_000_000, NOW_US + 150_500_000, "INC-1")
    text = render_page(snapshots={"payment-api": ServiceSnapshot(NOW_US, {}, forced)})
    assert f"gold    {cell}  " in text
    assert (
        f"payment-api: {state} since 2027-01-15T07:59:59.000Z until 2027-01-15T08:02:30.500Z (generation 5): INC-1"
        in (text.splitlines())
    )


@pytest.mark.parametrize(("state", "opened"), [(State.OPEN, 1), (State.HALF_OPEN, 1), (State.FORCED_OPEN, 0)])
def test_breaker_guard_shows_open_and_maximum_breakers(
    monkeypatch: pytest.MonkeyPatch, state: State, opened: int
) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    guarded = LoadedPolicy(replace(LOADED.policy, breaker_guard=BreakerGuard(30)), LOADED.hash)
    view = replace(OPEN, state=state)
    changes = {
        "policy": guarded,
        "plans": CompiledPolicy(guarded).plans,
        "snapshots": {"payment-api": ServiceSnapshot(NOW_US, {}, view)},
    }
    assert render_server_status(snapshot(**changes))["breakerGuard"] == {"open": opened, "max": 3}
    assert f"breakers  {opened} open, at most 3 (breakerGuard)" in render_page(**changes).splitlines()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (151, "2m31s"), (180, "3m"), (3600, "1h"), (90_061, "25h1m1s")]
)
def test_countdown_is_formatted_like_a_go_duration(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


def test_overrides_of_one_service_are_listed_and_merged_until_the_first_end() -> None:
    overrides = (
        Override("payment-api", "2027-01-15T08:10:00Z", "INC-1", quota_factor=Quantity.parse("2"), by="alice"),
        Override("payment-api", "2027-01-15T08:05:00Z", "INC-2", reset_at="2027-01-15T08:00:00Z", by="bob"),
    )
    document = render_server_status(snapshot(overrides=OverridesStatus("here", (), {"payment-api": overrides})))
    assert [(entry["reason"], entry["by"]) for entry in document["overrides"]["entries"]] == [
        ("INC-1", "alice"),
        ("INC-2", "bob"),
    ]
    [service] = [entry for entry in document["services"] if entry["name"] == "payment-api"]
    assert service["override"].items() >= {"quotaFactor": 2, "resetAt": "2027-01-15T08:00:00Z"}.items()
    assert service["override"].items() >= {"until": "2027-01-15T08:05:00Z", "reason": "INC-1; INC-2"}.items()
    lines = list(format_status(document))
    assert any(line.endswith(" left): INC-1 (by alice)") for line in lines)


def test_controller_document_has_leadership_and_dependencies() -> None:
    status = ControllerStatus(
        "0.1.0",
        "other leads",
        "p.yaml",
        LIVE,
        NOW_US,
        watches={"pods": WatchStatus(NOW_US, "HTTP 403")},
        webhooks=WebhooksStatus(NOW_US, ("ValidatingWebhookConfiguration/podgate: absent",), "HTTP 403"),
    )
    assert render_controller_status(status) == {
        "version": "0.1.0",
        "role": "controller",
        "leads": False,
        "waitsFor": "other leads",
        "notReady": [],
        "policy": {"source": "p.yaml", "hash": LIVE.hash, "loadedAt": format_utc(NOW_US), "errors": []},
        "rollout": None,
        "store": {
            "kind": "redis",
            "error": "",
            "cluster": None,
            "database": 0,
            "servers": [],
            "serversError": None,
        },
        "watches": {"pods": "HTTP 403"},
        "certificates": None,
        "webhooks": {
            "comparedAt": format_utc(NOW_US),
            "outdated": ["ValidatingWebhookConfiguration/podgate: absent"],
            "error": "HTTP 403",
        },
        "queues": None,
    }


def test_page_of_a_server_that_nobody_calls_says_so() -> None:
    document = render_server_status(snapshot(last_review_us=0))
    assert any("the API server has not called this server" in line for line in format_status(document))
    del document["lastReviewAt"]
    assert not any("last review" in line for line in format_status(document)), "an older server does not know"


def test_an_overload_is_shown_with_its_reasons() -> None:
    causes = {OverloadCause.FAILURES: "6 % of reviews failed, above 5 %, over 10 s"}
    document = render_server_status(snapshot(overload=OverloadStatus(causes, 1_800_000_000_000_000, gated=3)))
    assert document["overload"] == {
        "since": "2027-01-15T08:00:00.000Z",
        "reasons": [{"reason": "failures", "message": "6 % of reviews failed, above 5 %, over 10 s"}],
        "gatedPods": 3,
    }
    lines = [line for line in map(click.unstyle, format_status(document)) if line.startswith("overloaded")]
    assert lines == [
        "overloaded  6 % of reviews failed, above 5 %, over 10 s",
        "overloaded  since 2027-01-15T08:00:00.000Z, Pods gated: 3",
    ]


def test_the_leader_shows_its_queues_by_class_and_service() -> None:
    depths = (
        QueueDepth("payment-api", "gold", 3, 61, groups=WaitingGroups(1, 2)),
        QueueDepth("search", "gold", 0, 0),
        QueueDepth("ledger", "gold", 4, 200, "until 2027-01-15T09:00:00.000Z: INC-1"),
        QueueDepth("batch", "bronze", 1, 5, None, (FailingPods("admission", 1, "pod jobs/b: denied"),)),
    )
    failing = ({"reason": "admission", "pods": 1, "why": "pod jobs/b: denied"},)
    fine: dict[str, object] = {"failing": (), "groups": None}
    queues: dict[str, Any] = {
        "classes": [
            {"class": "gold", "waiting": 7, "oldestSeconds": 200},
            {"class": "bronze", "waiting": 1, "oldestSeconds": 5},
        ],
        "services": [
            {"service": "payment-api", "class": "gold", "waiting": 3, "oldestSeconds": 61, "paused": None}
            | fine
            | {"groups": {"complete": 1, "incomplete": 2}},
            {"service": "ledger", "class": "gold", "waiting": 4, "oldestSeconds": 200, "paused": depths[2].paused}
            | fine,
            {"service": "batch", "class": "bronze", "waiting": 1, "oldestSeconds": 5, "paused": None}
            | {"failing": failing, "groups": None},
        ],
    }
    line = "waiting  7 in gold, oldest 3m20s; 1 in bronze, oldest 5s; paused: ledger; cannot be released: batch"
    server = render_server_status(snapshot(queues=depths))
    controller = render_controller_status(ControllerStatus("0.1.0", queues=depths))
    for document, lines in ((server, format_status(server)), (controller, format_controller(controller))):
        assert document["queues"] == queues
        assert line in map(click.unstyle, lines)
    assert select_service(server, "ledger")["queues"] == {**queues, "services": queues["services"][1:2]}
    assert not any("waiting" in line for line in format_status(render_server_status(snapshot(queues=()))))


def test_a_rollout_is_shown_with_its_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.style", lambda text, **_: text)
    shadow = ShadowTotals()
    shadow.judged = 7
    shadow.differences["web", "placement"] = 3
    state = RolloutState(
        "a" * 16,
        governed=True,
        phase=Phase.CANARY,
        candidate="b" * 16,
        step=1,
        since="2027-01-15T07:00:00Z",
        paused=Intervention("lunch", by="alice"),
        rejected=(Rejection("c" * 16, "Pending", "9 % above 8 %"), Rejection("d" * 16, "denied")),
        waits_for="a person resumes it",
    )
    document = render_rollout(RolloutView("a" * 16, "b" * 16, state, "it is missing"), shadow)
    assert document == {
        "stable": "a" * 16,
        "candidate": "b" * 16,
        "phase": "Canary",
        "step": 1,
        "since": "2027-01-15T07:00:00Z",
        "waitsFor": "a person resumes it",
        "paused": {"reason": "lunch", "by": "alice"},
        "pinned": None,
        "rejected": [
            {"hash": "d" * 16, "reason": "denied"},
            {"hash": "c" * 16, "reason": "Pending", "figures": "9 % above 8 %"},
        ],
        "problem": "it is missing",
        "shadow": {
            "judged": 7,
            "leftOut": 0,
            "differences": [{"service": "web", "difference": "placement", "pods": 3}],
        },
    }
    assert list(format_rollout(document)) == [
        f"rollout  candidate {'b' * 16}: Canary, step 2, since 2027-01-15T07:00:00Z",
        "rollout  paused: lunch",
        "rollout  waits: a person resumes it",
        "rollout  not followed: it is missing",
        "shadow   7 Pods judged here: 3 placement in web",
    ]
    assert list(format_rollout(render_rollout(RolloutView("a" * 16)))) == []
