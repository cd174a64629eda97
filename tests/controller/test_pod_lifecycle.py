"""The store follows the watch; nothing is sent twice."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import WEB, ControllerSimulation, compile_policy, pod
from tests.controller.pod_lifecycle import wait_until
from tests.core.rollout.policies import build_canary, write_divided
from webhook.controller.pending_sightings import SIGHTINGS_MAX, PendingSightings
from webhook.controller.pod_index import DELETED_POD_KEPT_US, DELETED_PODS_MAX, PodIndex
from webhook.controller.release.gated_pods import GatedPods
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.kubernetes.pod import Container, ContainerStatus, OwnerReference, Resources, SchedulingGate
from webhook.core.pods.ownership import NOT_LIVE_US, OwnedPod
from webhook.core.quota import Sighting

STANDING = ", standing: {hard: {pods: 100000, cpu: 100000}}"


class SightingSimulation(ControllerSimulation):
    """A simulation that records the sightings sent to the store."""

    def __init__(self, services: str = WEB, **options: object) -> None:
        super().__init__(services, **options)  # type: ignore[arg-type]  its own options
        self.recorded: list[tuple[str, bool]] = []
        observe = self.store.observe

        async def record(plan: object, sightings: list[Sighting]) -> object:
            self.recorded += [(sighting.uid, sighting.lives) for sighting in sightings]
            return await observe(plan, sightings)  # type: ignore[arg-type]  passed through

        self.store.observe = record  # type: ignore[method-assign, assignment]  a spy


async def test_running_pods_count_as_live_and_ended_ones_do_not() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a", "b", "c", "d")
    await simulation.run_all()
    assert await simulation.list_standing() == {"a", "b", "c", "d"}
    simulation.cluster.update("a", phase="Succeeded")
    simulation.cluster.update("b", phase="Failed")
    simulation.cluster.delete("c")
    await simulation.run_all()
    assert await simulation.list_standing() == {"d"}
    assert await simulation.count_used() == 4, "windows keep what they counted"


async def test_pod_that_cannot_be_read_stays_as_it_was_until_it_is_gone() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a", "b")
    await simulation.run_all()
    tracker = simulation.tracker
    await tracker.on_list_begun()
    await tracker.on_listed([simulation.cluster.pods["a"]])
    await tracker.on_unread("b", gone=False)
    await tracker.on_list_complete()
    await simulation.send_sightings()
    assert await simulation.list_standing() == {"a", "b"}
    await tracker.on_unread("b", gone=True)
    await simulation.send_sightings()
    assert await simulation.list_standing() == {"a"}


async def test_terminating_pod_counts_until_its_grace_period_ends() -> None:
    simulation = ControllerSimulation()
    await simulation.create("stuck")
    simulation.cluster.terminate("stuck", 30)
    await simulation.run_all()
    simulation.wait(60)
    await simulation.send_sightings()
    assert await simulation.list_standing() == {"stuck"}
    simulation.wait(1)
    await simulation.send_sightings()
    assert await simulation.list_standing() == set()


async def test_irrelevant_changes_are_not_reported() -> None:
    simulation = SightingSimulation()
    await simulation.create("a")
    await simulation.run_all()
    simulation.cluster.update("a", phase="Running")
    simulation.cluster.update("a", annotations={"x": "y"})
    await simulation.run_all()
    await simulation.run_all()
    assert simulation.recorded == [("a", True)]


async def test_newest_of_many_states_is_reported() -> None:
    simulation = SightingSimulation()
    simulation.set_available(store=False)
    simulation.cluster.create(pod("a"))
    await simulation.watch_all()
    await simulation.send_sightings()
    simulation.cluster.update("a", phase="Failed")
    simulation.cluster.delete("a")
    await simulation.watch_all()
    await simulation.send_sightings()
    simulation.set_available(store=True)
    await simulation.send_sightings()
    assert simulation.recorded == [("a", False)]


async def test_change_during_a_report_is_reported_afterwards() -> None:
    pending, first = PendingSightings(), build_owned("web")
    assert pending.put("web", "a", first, 1)
    assert [*pending.take("web", 9)] == ["a"]
    assert pending.put("web", "a", replace(first, name="newer"), 5)
    assert pending.services == [], "one batch at a time"
    pending.requeue("web")
    assert pending.resume_version(9) == 1, "the store has received none yet"
    assert pending.take("web", 9)["a"].found.name == "newer"
    pending.acknowledge("web")
    assert (pending.resume_version(9), pending.services) == (9, [])


async def test_batch_has_at_most_64_entries() -> None:
    simulation = ControllerSimulation()
    sizes: list[int] = []
    observe = simulation.store.observe

    async def record(plan: object, sightings: list[Sighting]) -> object:
        sizes.append(len(sightings))
        return await observe(plan, sightings)  # type: ignore[arg-type]  passed through

    simulation.store.observe = record  # type: ignore[method-assign, assignment]  a spy
    await simulation.create(*(f"u{number}" for number in range(150)))
    await simulation.watch_all()
    await simulation.send_sightings()
    assert sizes == [64, 64, 22]


async def test_pending_reports_are_bounded() -> None:
    pending = PendingSightings()
    for number in range(SIGHTINGS_MAX):
        assert pending.put("web", str(number), build_owned("web"), number)
    assert not pending.put("web", "one more", build_owned("web"), SIGHTINGS_MAX)
    assert (pending.holds("web", "0"), pending.holds("web", "1"), pending.holds("web", "one more")) == (
        False,
        True,
        True,
    )


async def test_old_pods_of_services_without_live_limits_are_not_reported() -> None:
    simulation = SightingSimulation("- name: web\n  match: {namespaces: [shop]}\n")
    simulation.cluster.create(pod("old"))
    simulation.wait(3601)
    simulation.cluster.create(pod("young"))
    await simulation.run_all()
    assert simulation.recorded == [("young", True)]


async def test_uncounted_pod_is_charged_and_counted() -> None:
    simulation = ControllerSimulation()
    await simulation.create("counted")
    simulation.cluster.create(pod("uncounted"))
    await simulation.run_all()
    assert (simulation.reported.charged_late, await simulation.count_used()) == ({"web": 1}, 2)


async def test_uncounted_pod_of_a_service_that_counts_nothing_is_recorded_and_not_reported() -> None:
    """The API server may not validate such Pods at all; nothing is charged for them."""
    simulation = SightingSimulation("- name: web\n  match: {namespaces: [shop]}\n")
    simulation.cluster.create(pod("uncounted"))
    await simulation.run_all()
    assert simulation.recorded == [("uncounted", True)]
    assert simulation.reported.charged_late == {}


async def test_uncounted_resize_is_charged() -> None:
    simulation = ControllerSimulation(WEB.replace("hard: {pods: 100000}", "hard: {pods: 100000, cpu: 100}"))
    await simulation.create("a", cpu="1")
    await simulation.run_all()
    simulation.cluster.update("a", spec={"containers": (Container("c", Resources({"cpu": "3"})),)})
    await simulation.run_all()
    assert simulation.reported.raised == {"web": 1}
    simulation.cluster.update("a", spec={"containers": (Container("c", Resources({"cpu": "2"})),)})
    await simulation.run_all()
    snapshot = await simulation.store.snapshot(simulation.plan)
    assert [(use.window, use.resource, use.used) for use in snapshot.uses[""]][1:] == [
        ("24h", "cpu", 3000),
        ("standing", "pods", 1),
        ("standing", "cpu", 2000),
    ]


async def test_resize_down_frees_live_amounts_once_the_watch_shows_that_it_is_done() -> None:
    simulation = ControllerSimulation(WEB.replace("hard: {pods: 100000}", "hard: {pods: 100000, cpu: 100}"))
    await simulation.create("a", cpu="3")
    asked, kept = Resources({"cpu": "1"}), Resources({"cpu": "3"})
    held: list[list[int]] = []
    for actual in (kept, asked):
        status = ContainerStatus(name="c", resources=actual, allocated_resources=actual.requests)
        simulation.cluster.update("a", spec={"containers": (Container("c", asked),)}, container_statuses=(status,))
        await simulation.run_all()
        snapshot = await simulation.store.snapshot(simulation.plan)
        held.append([use.used for use in snapshot.uses[""] if use.resource == "cpu"])
    assert held == [[3000, 3000], [3000, 1000]]


async def test_label_counts_where_its_service_may_own_pods_and_is_reported_elsewhere() -> None:
    simulation = ControllerSimulation()
    simulation.cluster.create(pod("labelled", labels={"podgate.io/service": "web"}))
    simulation.cluster.create(pod("elsewhere", labels={"podgate.io/service": "web"}, namespace="elsewhere"))
    for _ in range(2):
        simulation.cluster.update("elsewhere", phase="Running")
        simulation.cluster.update("labelled", phase="Running")
        await simulation.run_all()
        simulation.watch.cut()
    await simulation.run_all()
    assert (simulation.reported.ignored, await simulation.count_used()) == (1, 1)
    assert await simulation.list_standing() == {"labelled"}
    assert simulation.reported.drift == {"web": 0}, "a Pod without a service is not missing"


async def test_relabelling_frees_no_live_pod() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    simulation.cluster.update("a", labels={"app": "other", "podgate.io/service": "web"})
    await simulation.run_all()
    assert await simulation.list_standing() == {"a"}


async def test_pod_that_loses_its_label_counts_until_it_is_gone() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    simulation.cluster.update("a", labels={"app": "other"})
    simulation.watch.list_again()
    await simulation.run_all()
    assert await simulation.list_standing() == {"a"}
    simulation.cluster.delete("a")
    await simulation.run_all()
    assert await simulation.list_standing() == set()


async def test_pod_that_lost_its_label_counts_for_a_new_leader_too() -> None:
    """The store has its record, and the new leader has never seen the label."""
    simulation = ControllerSimulation()
    await simulation.create("a", "b")
    await simulation.run_all()
    simulation.cluster.update("a", labels={"app": "other"})
    simulation.change_leader()
    for _ in range(3):
        await simulation.run_all()
        await simulation.repair()
    assert await simulation.list_standing() == {"a", "b"}
    simulation.cluster.update("a", phase="Succeeded")
    simulation.cluster.delete("b")
    for _ in range(3):
        await simulation.run_all()
        await simulation.repair()
    assert await simulation.list_standing() == set()


async def test_pods_count_by_their_label_once_the_store_has_lost_them() -> None:
    """A tenant may relabel a running Pod, and name any owner: after a restart in memory only the label is left."""
    simulation = ControllerSimulation()
    simulation.cluster.create(pod("relabelled", labels={"app": "other", "podgate.io/service": "web"}))
    for version in ("x.example/v1", "apps/v1"):
        owner = OwnerReference(version, "DaemonSet", "d", "u", controller=True)
        simulation.cluster.create(pod(f"owned-{version}", owners=(owner,)))
    await simulation.run_all()
    assert await simulation.list_standing() == {"relabelled", "owned-x.example/v1", "owned-apps/v1"}


async def test_new_policy_reevaluates_all_pods() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    simulation.policy = compile_policy(WEB.replace("app: web", "app: other").replace("name: web", "name: new"))
    assert simulation.tracker.needs_new_list()
    simulation.watch.list_again()
    await simulation.run_all()
    assert not simulation.tracker.needs_new_list()
    plan = simulation.policy.plans["new"]
    assert (await simulation.store.list_live(plan, ""))[0] == {}
    simulation.policy = compile_policy(WEB)
    simulation.watch.list_again()
    await simulation.run_all()
    assert await simulation.list_standing() == {"a"}


@pytest.mark.parametrize("services", [WEB, WEB.replace(STANDING, "")], ids=["standing", "no standing"])
async def test_pod_of_a_new_owner_is_released_by_the_former_service(services: str) -> None:
    simulation = ControllerSimulation(services)
    simulation.cluster.create(pod("a"))
    await simulation.watch_all()  # the store has not received it
    new = services.replace("name: web", "name: new")
    simulation.policy = compile_policy(new + services.replace("namespaces: [shop]", "namespaces: [elsewhere]"))
    simulation.watch.list_again()
    await simulation.run_all()
    assert (await simulation.count_used(), simulation.reported.charged_late) == (0, {"new": 1})


async def test_earlier_states_of_a_pod_without_a_service_do_not_take_it_for_deleted() -> None:
    """The watch of a new leader begins before its list. A waiting Pod whose service was removed must not be lost."""
    gated = GatedPods()
    simulation = ControllerSimulation(observers=(gated,))
    await simulation.watch_all()
    simulation.renew()
    for uid in ("lives", "unread", "gone"):
        new = pod(uid, labels={"app": "other"}, scheduling_gates=(SchedulingGate(QUEUE_GATE),))
        simulation.cluster.create(new)
    simulation.cluster.delete("gone")
    unread = simulation.cluster.pods.pop("unread")
    simulation.change_leader()
    await simulation.watch.step(simulation.tracker)
    await simulation.tracker.on_unread("unread", gone=False)
    await simulation.watch_all()
    new_pods, left = gated.take_changes()
    assert ([new.waiting.uid for new in new_pods], left) == (["lives"], set())
    assert [uid in simulation.tracker.index for uid in ("lives", "unread", "gone")] == [False, False, True]
    simulation.cluster.pods["unread"] = unread
    simulation.cluster.delete("unread")
    simulation.cluster.delete("lives")
    await simulation.watch_all()
    assert (gated.take_changes(), len(simulation.tracker._unowned)) == (([], {"lives"}), 0)


async def test_recompiled_equal_policy_is_not_new() -> None:
    simulation = ControllerSimulation()
    await simulation.run_all()
    simulation.policy = compile_policy()
    assert not simulation.tracker.needs_new_list()


async def test_a_candidate_that_comes_or_goes_reevaluates_all_pods() -> None:
    """What observers know of Pods is by both policies of a canary: `VariantPods` acts on the variants of both."""
    simulation = ControllerSimulation()
    stable, divided = WEB, write_divided("spot", "on-demand")
    canary = build_canary(stable, WEB + divided)
    simulation.policy = canary
    await simulation.run_all()
    simulation.policy = build_canary(stable, WEB + divided)
    assert not simulation.tracker.needs_new_list(), "compiled again"
    simulation.policy = build_canary(stable, WEB + write_divided("arm", "on-demand"))
    assert simulation.tracker.needs_new_list(), "another candidate"
    simulation.watch.list_again()
    await simulation.run_all()
    simulation.policy = compile_policy(stable)
    assert simulation.tracker.needs_new_list(), "no candidate"


async def test_changed_labels_that_only_the_candidate_reads_reevaluate_all_pods() -> None:
    read = WEB.replace("match: {", "match: {namespaceSelector: {matchLabels: {tier: prod}}, ")
    simulation = ControllerSimulation(labels={"shop": {"tier": "test"}})
    simulation.policy = build_canary(WEB, read)
    simulation.cluster.create(pod("a"))
    await simulation.run_all()
    simulation.namespaces.update({"shop": {"tier": "test", "scanned-at": "1"}})
    assert not simulation.tracker.needs_new_list()
    simulation.namespaces.update({"shop": {"tier": "prod"}})
    assert simulation.tracker.needs_new_list()


async def test_changed_namespace_labels_reevaluate_all_pods() -> None:
    selector = "namespaceSelector: {matchLabels: {tier: prod}}"
    services = f"- name: web\n  match: {{{selector}}}\n  quota: {{standing: {{hard: {{pods: 9}}}}}}\n"
    simulation = ControllerSimulation(services, labels={"shop": {"tier": "test"}})
    simulation.cluster.create(pod("a", labels={}))
    await simulation.run_all()
    assert await simulation.list_standing() == set()
    simulation.namespaces.update({"shop": {"tier": "test", "scanned-at": "1"}})
    assert not simulation.tracker.needs_new_list(), "the policy does not read this label"
    simulation.namespaces.update({"shop": {"tier": "prod"}})
    assert simulation.tracker.needs_new_list()
    simulation.watch.list_again()
    await simulation.run_all()
    assert await simulation.list_standing() == {"a"}


async def test_two_simultaneous_leaders_do_no_harm() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a", "b")
    await simulation.run_all()
    simulation.wait(10)
    simulation.renew()
    former = simulation.controller
    former_watch = simulation.watch, simulation.tracker
    simulation.change_leader()
    await simulation.create("c")
    simulation.cluster.delete("a")
    await simulation.admit(pod("lost"))
    simulation.wait(70)
    await simulation.run_all()
    await former._drift_repair.round()  # for it `a` still lives, and `c` does not exist
    await former._sighting_sender.send()
    await former._drift_repair.round()
    await former._sighting_sender.send()
    await former._refunds.round()
    await former_watch[0].step(former_watch[1])
    await former._refunds.round()
    await simulation.run_all()
    for _ in range(2):
        await simulation.run_all()
    assert (await simulation.list_standing(), await simulation.count_used()) == ({"b", "c"}, 3)
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}


async def test_uids_of_deleted_pods_are_bounded_in_number_and_time() -> None:
    index = PodIndex()
    for number in range(DELETED_PODS_MAX + 1):
        index.mark_deleted(str(number), None, number)
    assert ("0" in index, "1" in index, index.forgotten_until_us) == (False, True, 0)
    index.mark_deleted("late", None, DELETED_POD_KEPT_US + 10)
    assert ("9" in index, "10" in index, index.forgotten_until_us) == (False, True, 9)


def build_owned(service: str) -> OwnedPod:
    return OwnedPod(service, "shop", "n", {"pods": 1}, NOT_LIVE_US, 0, is_sure=True, is_labelled=True)


async def test_loops_report_without_explicit_steps() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    running = asyncio.create_task(simulation.controller.run())
    await wait_until(lambda: simulation.watch.event_handler is not None)
    await simulation.watch_all()
    await wait_until(lambda: simulation.reported.drift == {"web": 0})
    simulation.wait(10)
    await simulation.admit(pod("lost"))
    simulation.wait(70)
    await wait_until(lambda: bool(simulation.watch.lookups))
    await simulation.watch_all()
    await wait_until(lambda: bool(simulation.reported.refunded))
    simulation.policy = compile_policy(WEB.replace("24h", "12h"))
    await wait_until(lambda: simulation.watch.position is None)
    running.cancel()
    await asyncio.wait([running])
    assert (await simulation.list_standing(), simulation.reported.watched) == ({"a"}, 1)
