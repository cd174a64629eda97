"""Guarantees of a policy: from the document to plans, denials, status, waiting Pods and lint."""

import dataclasses

import click
import msgspec
import pytest
from msgspec.structs import replace

from tests.core.recording import Recorder
from tests.core.reviewing import Gate
from webhook.commands.pages.pod_report_page import format_limit
from webhook.commands.pages.status_page import format_status
from webhook.controller.release.obstacles import find_obstacle
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.diagnosis import PodFacts, Surroundings, diagnose
from webhook.core.document import Purpose, load
from webhook.core.overrides.exceptions import compile_exceptions
from webhook.core.overrides.loading import load as load_overrides
from webhook.core.quota import DeniedBy, GuaranteeUse, Holder, Receipt, ServiceSnapshot, Use
from webhook.core.quota.counter_resets import find_resets
from webhook.core.reporting.limit_record import unpack_limits
from webhook.core.reporting.status import ServerStatus, render_server_status

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
SERVICES = """\
pools: [{name: prod, windows: [{window: 1m, hard: {pods: 5, cpu: "4"}}]}]
services:
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  pool: prod
- name: pay
  match: {namespaces: [shop]}
  pool: prod
  guaranteed: {windows: [{window: 60s, hard: {pods: 3, requests.cpu: 2500m}}]}
"""
LIVE = """\
pools: [{name: prod, windows: [{window: 1m, hard: {pods: 50}}], standing: {hard: {pods: 5, cpu: "4"}}}]
services:
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  pool: prod
- name: pay
  match: {namespaces: [shop]}
  pool: prod
  guaranteed: {standing: {hard: {pods: 3, requests.cpu: 2500m}}}
"""
UNGUARANTEED = SERVICES.partition("  guaranteed")[0]
NOW_US = 1_800_000_000_000_000


def policy(services: str = SERVICES) -> CompiledPolicy:
    return CompiledPolicy(load(f"{HEAD}{services}".encode(), Purpose.LINT).policy)


def build_snapshot(use: Use, guarantee: GuaranteeUse) -> ServiceSnapshot:
    cpu = Use("1m", "cpu", 0, 4000, 1, 0, Holder.POOL, "prod")
    return ServiceSnapshot(NOW_US, pool=(replace(use, guarantee=guarantee), cpu))


def replace_snapshots(status: ServerStatus) -> ServerStatus:
    """Return a status without any answer of the store."""
    return dataclasses.replace(status, snapshots={})


def list_advice(services: str) -> list[str]:
    return [str(problem) for problem in load(f"{HEAD}{services}".encode(), Purpose.LINT).warnings]


def test_a_plan_has_its_own_guarantee_and_those_of_others() -> None:
    plans = policy().plans
    web, pay = plans["web"].guarantees[0], plans["pay"].guarantees[0]
    assert web is not None
    assert pay is not None
    assert (web.counter, web.hard, web.others) == ("", 0, (("pods pay", 3),))
    assert (pay.counter, pay.hard, pay.others) == ("pods pay", 3, ())
    assert plans["pay"].ceilings == (("pods", 5), ("requests.cpu", 4000))
    assert plans["web"].ceilings == (("pods", 2), ("requests.cpu", 1500))
    assert not policy(UNGUARANTEED).plans["web"].has_guarantees


def test_an_exception_keeps_the_guarantees_of_all_members() -> None:
    compiled = policy()
    text = "workload: {namespace: shop, kind: Deployment, name: web}, modes: {breaker: Audit}"
    live = load_overrides(f"- {{service: web, {text}, until: 2099-01-01T00:00:00Z, reason: r}}\n".encode()).list_live(0)
    [found] = compile_exceptions(compiled.services, compiled, live)
    assert found.part.plan.pool == compiled.plans["web"].pool


async def test_a_denial_tells_what_is_guaranteed_and_kept() -> None:
    gate = Gate(load(f"{HEAD}{SERVICES}".encode(), Purpose.SERVE).policy)
    for number in range(2):
        assert (await gate.validate(object=gate.build_owned_pod(f"w{number}"))).allowed
    denied = await gate.validate(object=gate.build_owned_pod("w2"))
    assert "pool prod: pods in 1m: hard 5, used 2, asked 1, kept for others 3; could pass from" in denied.status.message
    for cpu, reason in (("2", "what the guarantees of others leave of the limit, and"), ("5", "the whole limit and")):
        resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
        large = gate.build_owned_pod("l", containers=[{"name": "c", "resources": resources}])
        message = (await gate.validate(object=large)).status.message
        assert f"the request exceeds {reason} can never pass" in message


def test_a_plan_has_guarantees_of_live_pods() -> None:
    plans = policy(LIVE).plans
    assert [found and found.others for found in plans["web"].guarantees] == [
        None,
        (("pods pay", 3),),
        (("requests.cpu pay", 2500),),
    ]
    assert [most for _, most in plans["web"].ceilings] == [50, 2, 1500]
    assert policy(LIVE.replace("guaranteed: {standing", "modes: {} #")).plans["web"].pool_standing is not None


async def test_a_denial_by_live_pods_of_a_pool_tells_what_is_guaranteed_and_kept() -> None:
    gate = Gate(load(f"{HEAD}{LIVE}".encode(), Purpose.REVIEW).policy)
    await gate.store.mark_pool_complete(gate.compiled.plans["web"])
    for number in range(2):
        assert (await gate.validate(object=gate.build_owned_pod(f"w{number}"))).allowed
    denied = await gate.validate(object=gate.build_owned_pod("w2"))
    assert denied.status.message.endswith(
        "pool prod: pods live at one time: hard 5, used 2, asked 1, kept for others 3; could pass when enough of the"
        " pool's live Pods have ended"
    )


def test_status_shows_live_pods_of_a_pool_guaranteed_shared_and_left() -> None:
    compiled, snapshots = policy(LIVE), {}
    for name, guarantee in (("web", GuaranteeUse(0, 0, 2)), ("pay", GuaranteeUse(3, 1, 0))):
        use = Use("standing", "pods", 2, 5, 1, 0, Holder.POOL, "prod", guarantee=guarantee)
        cpu = Use("standing", "cpu", 0, 4000, 1, 0, Holder.POOL, "prod", guarantee=GuaranteeUse(2500, 0, 0))
        window = Use("1m", "pods", 2, 50, 1, 0, Holder.POOL, "prod")
        snapshots[name] = ServiceSnapshot(NOW_US, pool=(window, use, cpu), is_pool_standing_known=False)
    status = ServerStatus("0", NOW_US, NOW_US, policy=compiled.loaded, plans=compiled.plans, snapshots=snapshots)
    document = render_server_status(status)
    [pool], [_, member] = document["pools"], document["services"]
    row = next(row for row in pool["windows"] if (row["window"], row["resource"]) == ("standing", "pods"))
    assert [row[key] for key in ("enforced", "guaranteed", "shared", "sharedLeft")] == [False, 3, 2, 1]
    assert member["guaranteed"][0] == {"window": "standing", "resource": "pods", "hard": 3, "used": 1, "left": 2}
    page = click.unstyle("\n".join(format_status(document)))
    assert "prod: limits on live Pods are not enforced: the live Pods of all its services are not known" in page
    assert "prod: pods live at one time: 3 guaranteed, 2 shared, of which 1 left" in page
    assert "pay: guaranteed 3 pods live at one time of pool prod: 1 used, 2 left" in page
    unread = render_server_status(replace_snapshots(status))
    assert [row["hard"] for row in unread["pools"][0]["windows"]] == [50, 5, "4"]


@pytest.mark.parametrize("used", [(0, 0), (2, 1), (2, 3), (1, 4)])
def test_status_shows_what_is_guaranteed_shared_and_left(used: tuple[int, int]) -> None:
    web, pay = used
    compiled = policy()
    snapshots = {}
    for name, guarantee in (("web", GuaranteeUse(0, 0, max(0, 3 - pay))), ("pay", GuaranteeUse(3, pay, 0))):
        use = Use("1m", "pods", web + pay, 5, 1, 0, Holder.POOL, "prod")
        snapshots[name] = build_snapshot(use, guarantee)
    status = ServerStatus("0", NOW_US, NOW_US, policy=compiled.loaded, plans=compiled.plans, snapshots=snapshots)
    document = render_server_status(status)
    [pool], [_, member] = document["pools"], document["services"]
    left = 5 - web - pay - max(0, 3 - pay)
    row = pool["windows"][0]
    assert (row["guaranteed"], row["shared"], row["sharedLeft"]) == (3, 2, left)
    assert member["guaranteed"][0] == {
        "window": "1m",
        "resource": "pods",
        "hard": 3,
        "used": pay,
        "left": max(0, 3 - pay),
    }
    page = click.unstyle("\n".join(format_status(document)))
    assert f"prod: pods in 1m: 3 guaranteed, 2 shared, of which {left} left" in page
    assert f"pay: guaranteed 3 pods in 1m of pool prod: {pay} used, {max(0, 3 - pay)} left" in page


def test_a_waiting_pod_keeps_no_room_from_other_members_of_a_pool_with_guarantees() -> None:
    use = Use("1m", "pods", 5, 5, 1, NOW_US, Holder.POOL, "prod")
    refused = Receipt(NOW_US, DeniedBy.QUOTA, over=(use,), free_at_us=NOW_US)
    assert find_obstacle(refused, NOW_US, NOW_US)[1] is Holder.POOL
    kept = replace(refused, over=(replace(use, guarantee=GuaranteeUse(0, 0, 3)),))
    assert find_obstacle(kept, NOW_US, NOW_US)[1] is Holder.SERVICE


def test_free_capacity_of_members_is_that_of_their_guarantees() -> None:
    compiled, capacity = policy(), FreeCapacity()
    use = Use("1m", "pods", 2, 5, 1, 0, Holder.POOL, "prod")
    for name, guarantee in (("web", GuaranteeUse(0, 0, 3)), ("pay", GuaranteeUse(3, 0, 0))):
        capacity.add(compiled.parts[name], build_snapshot(use, guarantee))
    assert {key[2]: left for key, left in capacity._left.items() if key[-1] == "pods"} == {"web": 0, "pay": 3}


def test_a_new_guarantee_is_said_to_start_empty() -> None:
    before, after = (load(f"{HEAD}{each}".encode(), Purpose.LINT).policy.policy for each in (UNGUARANTEED, SERVICES))
    [line] = find_resets(before, after)
    path, _, reason = line.partition(": ")
    assert path == "services[pay].guaranteed.windows[60s]"
    assert reason == "its own use starts empty: what it has used counts as a use of what all share"
    assert list(find_resets(after, before)) == []


def test_members_that_are_not_enforced_are_warned_of() -> None:
    assert list_advice(SERVICES) == []
    audited = "  modes: {quota: Audit}\n- name: pay"
    [warning] = list_advice(SERVICES.replace("- name: pay", audited))
    assert "modes.quota: Audit: its Pods may take what pool prod guarantees to other services" in warning
    assert list_advice(UNGUARANTEED.replace("- name: pay", audited)) == []


async def test_a_recorded_denial_and_its_explanation_name_the_guarantees() -> None:
    recorder = Recorder()
    gate = Gate(load(f"{HEAD}{SERVICES}".encode(), Purpose.SERVE).policy, observers=[recorder])
    for number in range(3):
        await gate.validate(object=gate.build_owned_pod(f"w{number}"))
    [record] = [record for record in recorder.records if record.uid == "w2"]
    found = {limit.resource: (limit.guaranteed, limit.kept) for limit in record.limits if limit.over}
    assert found == {"pods": (0, 3)}
    report = diagnose(PodFacts("shop", "web-w2", "w2", records=(record,)), Surroundings(NOW_US))
    assert report is not None
    shown = [format_limit(limit) for limit in report.quota if limit.over]
    assert [text.partition(";")[0] for text in shown] == [
        "pool prod: pods in 1m: hard 5, used 2, asked 1, kept for others 3"
    ]


def test_a_record_of_an_earlier_version_has_no_guarantees() -> None:
    """Its uses have fewer fields; one of a later version may have more."""
    use = ["1m", "pods", 5, 5, 1, None, "pool", "prod", 0]
    for fields in (use, [*use, None], [*use, {"hard": 3, "used": 1, "kept": 2}, "later"]):
        [limit] = unpack_limits(msgspec.msgpack.encode(["web", [], [], [], [fields]]))
        assert (limit.used, limit.never, limit.guaranteed) == (5, True, 3 if "later" in fields else 0)
