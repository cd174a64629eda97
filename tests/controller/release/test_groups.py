"""Groups of waiting Pods: released together or not at all, on a simulated cluster."""

import pytest
from msgspec.structs import replace

from tests.controller.release.group_simulation import JOB, SERVICES, SINGLE, GroupSimulation, member_of
from tests.controller.release.queue_simulation import SECOND_US
from tests.controller.release.release_loop import read_usage
from webhook.controller.release.place_reporter import PlaceReporter
from webhook.core.groups.completeness import Size
from webhook.core.groups.membership import Membership
from webhook.core.kubernetes.pod import OwnerReference, PodStatus
from webhook.core.policy_fields import GroupSource
from webhook.core.quota import CounterPlan
from webhook.core.reporting.queue_document import WaitCause, WaitingGroups
from webhook.errors import StoreUnavailableError


async def test_a_group_waits_for_its_members_and_is_released_at_once() -> None:
    shop = GroupSimulation()
    group = member_of("a", 3)
    await shop.join(group, "a1", "a2")
    await shop.run_rounds(10)
    assert shop.gates.ungated == []
    assert shop.waiting == {"web": 2}
    rows = await shop.read_rows()
    assert {row.why for row in rows.values()} == {"2 of 3 members of its group are here"}
    assert {row.cause for row in rows.values()} == {WaitCause.GROUP_INCOMPLETE}

    await shop.join(group, "a3")
    await shop.run_rounds(1)

    assert sorted(shop.gates.ungated) == ["a1", "a2", "a3"]
    assert await read_usage(shop) == 3
    assert shop.waiting == {"web": 0}


async def test_a_group_without_room_for_all_waits_whole_and_others_pass_it() -> None:
    shop = GroupSimulation()
    await shop.create("x", "y")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 3), "a1", "a2", "a3")
    await shop.run_rounds(10)
    assert sorted(shop.gates.ungated) == ["x", "y"]
    rows = await shop.read_rows()
    assert {row.why for row in rows.values()} == {
        "its group a waits for room for all 3 Pods: a limit of web is reached"
    }
    assert len({row.expected_at for row in rows.values()}) == 1

    await shop.create("z")
    await shop.run_rounds(1)
    assert "z" in shop.gates.ungated

    await shop.run_rounds(70)
    assert sorted(shop.gates.ungated) == ["a1", "a2", "a3", "x", "y", "z"]


async def test_a_waiting_group_says_what_room_all_of_it_asks_for() -> None:
    shop = GroupSimulation(SERVICES.replace("{pods: 4}", '{cpu: "8", pods: 9}'))
    await shop.create("x", cpu="6")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 3), "a1", "a2", cpu="1500m")
    await shop.run_rounds(1)
    rows = await shop.read_rows()
    assert rows["a1"].why == "2 of 3 members of its group are here; they ask for requests.cpu 3"
    await shop.run_rounds(1)
    assert shop.depths[0].groups == WaitingGroups(complete=0, incomplete=1)

    await shop.join(member_of("a", 3), "a3", cpu="2500m")
    await shop.run_rounds(2)
    rows = await shop.read_rows()
    assert rows["a1"].why == (
        "its group a waits for room for all 3 Pods, requests.cpu 5500m: a limit of web is reached"
    )
    assert shop.depths[0].groups == WaitingGroups(complete=1, incomplete=0)


async def test_an_event_is_sent_when_a_group_waits_for_something_else() -> None:
    shop = GroupSimulation()
    notes = list[tuple[str, str]]()

    class Events:
        def offer(self, _: str, __: str, uid: str, note: str, ___: str) -> None:
            notes.append((uid, note.partition(": ")[2]))

    reporter = PlaceReporter(shop.loop.queue, Events())  # type: ignore[arg-type]
    await shop.create("w", "x", "y", "z")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 3), "a1")
    for uid in ("a2", "a3"):
        for _ in range(2):
            await shop.run_rounds(3)
            await reporter.scan()
        await shop.join(member_of("a", 3), uid)
    await shop.run_rounds(3)
    await reporter.scan()

    assert [note for uid, note in notes if uid == "a1"] == [
        "1 of 3 members of its group are here",
        "its group a waits for room for all 3 Pods: a limit of web is reached",
    ]


async def test_two_groups_of_one_size_do_not_share_room() -> None:
    shop = GroupSimulation()
    for uid in ("a1", "b1", "a2", "b2", "a3", "b3"):
        await shop.join(member_of(uid[0], 3), uid)
    await shop.run_rounds(30)
    assert len(shop.gates.ungated) == 3
    assert len({uid[0] for uid in shop.gates.ungated}) == 1


async def test_a_group_above_a_whole_limit_waits_and_says_so() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 5), "a1", "a2", "a3", "a4", "a5")
    await shop.run_rounds(100)
    assert shop.gates.ungated == []  # above the whole limit
    assert await read_usage(shop) == 0
    rows = await shop.read_rows()
    assert {row.expected_at for row in rows.values()} == {None}
    assert rows["a1"].why == (
        "its group a of 5 Pods asks for pods 5, and 64s has 4 in all: make the group smaller, or have an admin raise"
        " the limit"
    )


async def test_pods_that_disagree_on_the_size_wait_and_say_so() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2), "a1")
    await shop.join(member_of("a", 3), "a2")
    await shop.run_rounds(10)
    assert shop.gates.ungated == []
    assert (await shop.read_rows())["a1"].why == (
        "its Pods disagree on the size of their group (2 and 3): give all of them one size"
    )


async def test_the_size_of_a_job_is_read_from_the_job() -> None:
    shop = GroupSimulation()
    await shop.join(JOB, "j1", "j2")
    await shop.run_rounds(5)
    assert (await shop.read_rows())["j1"].why == "the size of its group is not known yet"

    shop.sizes["train"] = Size(problem="its Job train is gone")
    await shop.run_rounds(5)
    assert (await shop.read_rows())["j1"].why == "its Job train is gone"

    shop.sizes["train"] = Size(2)
    await shop.run_rounds(2)
    assert sorted(shop.gates.ungated) == ["j1", "j2"]


async def test_two_pods_with_one_index_are_one_member() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2, "0"), "a1", "a1-again")
    await shop.run_rounds(5)
    assert shop.gates.ungated == []

    await shop.join(member_of("a", 2, "1"), "a2")
    await shop.run_and_show(3)

    assert shop.gates.ungated[:2] == ["a1", "a2"]
    assert "a1-again" in shop.gates.ungated  # surplus: released by itself, once the group runs


async def test_groups_of_one_name_in_other_services_or_with_other_owners_are_apart() -> None:
    shop = GroupSimulation()
    shop.sizes["train"] = Size(2)
    await shop.join(JOB, "j1")
    await shop.join(replace(JOB, owner="another"), "j2")
    await shop.run_rounds(5)
    assert shop.gates.ungated == []


async def test_an_incomplete_group_is_released_singly_if_the_policy_says_so() -> None:
    shop = GroupSimulation(SINGLE)
    await shop.join(member_of("a", 3), "a1", "a2")
    await shop.run_rounds(290)
    assert shop.gates.ungated == []
    await shop.run_rounds(20)
    assert sorted(shop.gates.ungated) == ["a1", "a2"]


async def test_a_member_that_is_deleted_makes_its_group_wait() -> None:
    shop = GroupSimulation()
    await shop.create("w", "x", "y", "z")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_rounds(5)
    shop.delete("a2")
    await shop.run_rounds(100)
    assert "a1" not in shop.gates.ungated

    await shop.join(member_of("a", 2), "a3")
    await shop.run_rounds(2)
    assert {"a1", "a3"} <= set(shop.gates.ungated)


async def test_a_pod_that_comes_when_its_group_runs_is_released_by_itself() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_and_show(2)

    await shop.join(member_of("a", 2), "a3")
    await shop.run_and_show(2)
    assert "a3" in shop.gates.ungated

    # Also for the next leader.
    shop.lead()
    shop.show(*shop.gates.pods)
    await shop.join(member_of("a", 2), "a4")
    await shop.run_and_show(2)
    assert "a4" in shop.gates.ungated
    assert await read_usage(shop) == 4


async def test_a_group_whose_pods_have_ended_gathers_again() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_and_show(2)
    for uid in ("a1", "a2"):
        shop.gates.pods[uid] = replace(shop.gates.pods[uid], status=PodStatus("Succeeded"))
    shop.show("a1", "a2")

    await shop.join(member_of("a", 2), "a3")
    await shop.run_and_show(5)
    assert "a3" not in shop.gates.ungated


async def test_while_one_gate_is_refused_the_others_are_not_taken_back() -> None:
    shop = GroupSimulation()
    shop.gates.refused.add("a2")
    await shop.join(member_of("a", 3), "a1", "a2", "a3")
    await shop.run_and_show(60)
    assert sorted(shop.gates.ungated) == ["a1", "a3"]
    assert await read_usage(shop) == 3  # the third one keeps its charge

    shop.gates.refused.clear()
    await shop.run_and_show(3)
    assert sorted(shop.gates.ungated) == ["a1", "a2", "a3"]
    assert await read_usage(shop) == 3


async def test_a_member_whose_gate_is_refused_does_not_hold_its_service() -> None:
    shop = GroupSimulation()
    shop.gates.refused.add("a2")
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_and_show(3)

    await shop.create("x", "y")
    await shop.run_and_show(3)
    assert {"x", "y"} <= set(shop.gates.ungated)
    await shop.run_and_show(60)
    await shop.create("z")
    await shop.run_and_show(10)
    assert "z" in shop.gates.ungated


async def test_a_large_group_is_not_taken_back_when_its_first_gates_are_gone() -> None:
    shop = GroupSimulation(SERVICES.replace("pods: 4", "pods: 40").replace("window: 64s", "window: 1h"))
    uids = [f"a{number:02}" for number in range(40)]
    shop.gates.refused.update(uids[35:])
    await shop.join(member_of("a", 40), *uids)
    await shop.run_and_show(60)
    assert len(shop.gates.ungated) == 35
    assert await read_usage(shop) == 40


async def test_a_new_leader_goes_on_with_a_group_that_is_released_in_part() -> None:
    shop = GroupSimulation(SERVICES.replace("window: 64s", "window: 1h"))
    shop.gates.refused.update({"a2", "a3"})
    await shop.join(member_of("a", 3), "a1", "a2", "a3")
    await shop.run_and_show(2)
    await shop.create("w", "x")
    await shop.run_and_show(2)
    assert len(shop.gates.ungated) == 2

    shop.lead()
    shop.show(*shop.gates.pods)
    shop.gates.refused.clear()
    await shop.run_and_show(5)
    assert {"a1", "a2", "a3"} <= set(shop.gates.ungated)
    assert await read_usage(shop) == 4


async def test_a_former_leaders_old_charges_are_not_taken_for_those_of_a_grown_group() -> None:
    shop = GroupSimulation()
    shop.gates.refused.update({"a1", "a2"})
    await shop.join(member_of("a", 2, "0"), "a1")
    await shop.join(member_of("a", 2, "1"), "a2")
    await shop.run_rounds(1)
    shop.delete("a2")
    shop.lead()  # the charges of a1 and a2 are in the store
    shop.clock.set(shop.clock.now_us() + 100 * SECOND_US)
    shop.gates.refused.clear()
    await shop.join(member_of("a", 2, "1"), "a3")
    await shop.run_rounds(3)
    assert sorted(shop.gates.ungated) == ["a1", "a3"]
    assert await read_usage(shop) == 2


async def test_a_job_above_max_size_waits_and_says_so() -> None:
    shop = GroupSimulation(SERVICES.replace("waitFor: 5m", "waitFor: 5m, maxSize: 2"))
    shop.sizes["train"] = Size(3)
    await shop.join(JOB, "j1", "j2", "j3")
    await shop.run_rounds(5)
    assert shop.gates.ungated == []
    assert (await shop.read_rows())["j1"].why == (
        "its group has 3 Pods, above quota.queue.groups.maxSize 2: make the group smaller, or have an admin raise"
        " maxSize"
    )


async def test_pods_beyond_the_size_of_a_group_follow_singly() -> None:
    shop = GroupSimulation()
    await shop.create("x", "y")
    await shop.run_and_show(1)
    await shop.join(member_of("a", 2), "a1", "a2", "a3", "a4", "a5")
    await shop.run_and_show(10)
    assert sorted(shop.gates.ungated) == ["a1", "a2", "x", "y"]
    await shop.run_and_show(70)
    assert sorted(shop.gates.ungated) == ["a1", "a2", "a3", "a4", "a5", "x", "y"]


async def test_a_replacement_that_asks_for_more_waits_for_room() -> None:
    services = SERVICES.replace("{pods: 4}", '{cpu: "3"}').replace("window: 64s", "window: 1h")
    shop = GroupSimulation(services)
    await shop.join(member_of("a", 2, "0"), "a0", cpu="1")
    await shop.join(member_of("a", 2, "1"), "a1", cpu="1")
    del shop.gates.pods["a1"]
    await shop.run_rounds(1)
    shop.delete("a1")
    await shop.run_and_show(2)
    await shop.join(member_of("a", 2, "1"), "a1-again", cpu="3")
    await shop.run_and_show(5)
    assert shop.gates.ungated == ["a0"]
    assert await read_usage(shop) <= 3000


async def test_a_member_that_expires_is_not_charged_with_its_group() -> None:
    services = SERVICES.replace("maxWait: 1h, whenExpired: Keep", "maxWait: 30s, whenExpired: Delete")
    shop = GroupSimulation(services)
    await shop.create("w", "x", "y", "z")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 2), "a1")
    await shop.run_rounds(20)
    await shop.join(member_of("a", 2), "a2")
    shop.clock.set(shop.clock.now_us() + 64 * SECOND_US)  # room for the group, at the moment when a1 expires
    await shop.run_rounds(2)
    assert "a1" in shop.gates.deleted
    assert not {"a1", "a2"} & set(shop.gates.ungated)
    assert await read_usage(shop) == 0


async def test_a_group_of_which_every_gate_is_refused_gives_its_room_back() -> None:
    shop = GroupSimulation()
    shop.gates.refused.update({"a1", "a2"})
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_rounds(45)
    assert shop.gates.ungated == []
    await shop.create("x", "y", "z")
    await shop.run_rounds(40)
    assert sorted(shop.gates.ungated) == ["x", "y", "z"]

    shop.gates.refused.clear()
    await shop.run_rounds(150)
    assert {"a1", "a2"} <= set(shop.gates.ungated)


async def test_the_share_of_a_vanished_member_is_for_the_pod_that_replaces_it() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 3, "0"), "a0")
    await shop.join(member_of("a", 3, "1"), "a1")
    await shop.join(member_of("a", 3, "2"), "a2")
    del shop.gates.pods["a1"]  # the watch does not know it yet
    await shop.run_rounds(1)
    shop.delete("a1")
    await shop.run_and_show(2)
    assert sorted(shop.gates.ungated) == ["a0", "a2"]
    await shop.create("x", "y")
    await shop.run_and_show(2)
    assert "y" not in shop.gates.ungated  # four places: two run, one is kept, one was free

    await shop.join(member_of("a", 3, "1"), "a1-again")
    await shop.run_and_show(2)

    assert "a1-again" in shop.gates.ungated
    assert await read_usage(shop) == 4


async def test_replacements_are_released_though_the_store_gives_no_answer_about_one_of_them() -> None:
    shop = GroupSimulation(SERVICES.replace("pods: 4", "pods: 9"))
    for index in ("0", "1", "2"):
        await shop.join(member_of("a", 3, index), f"a{index}")
    for uid in ("a1", "a2"):
        del shop.gates.pods[uid]  # the watch does not know it yet
    await shop.run_rounds(1)
    for uid in ("a1", "a2"):
        shop.delete(uid)
    shop.show("a0")
    await shop.run_rounds(1)
    refund, asked = shop.store.refund, list[str]()

    async def lose_second(plan: CounterPlan, uid: str) -> bool:
        asked.append(uid)
        if 1 < len(asked) < 10:
            raise StoreUnavailableError("no answer in time")
        return await refund(plan, uid)

    shop.store.refund = lose_second  # type: ignore[method-assign]  a store that is away for a while
    for index in ("1", "2"):
        await shop.join(member_of("a", 3, index), f"a{index}-again")
    await shop.run_rounds(0.5)
    assert len(shop.gates.ungated) == 2, "one has taken a share, and does not wait for the other one"
    await shop.run_rounds(10)
    assert sorted(shop.gates.ungated) == ["a0", "a1-again", "a2-again"]
    assert (await read_usage(shop), shop.troubles[:1]) == (3, ["no answer in time"])


async def test_a_share_that_nobody_takes_is_refunded_after_wait_for() -> None:
    shop = GroupSimulation(SERVICES.replace("window: 64s", "window: 1h"))
    await shop.join(member_of("a", 2), "a0", "a1")
    del shop.gates.pods["a1"]
    await shop.run_rounds(1)
    shop.delete("a1")
    await shop.run_and_show(2)
    assert await read_usage(shop) == 2
    await shop.run_rounds(301)
    assert await read_usage(shop) == 1


@pytest.mark.parametrize("uid", ["a1", "a2"])
async def test_an_operator_releases_a_group_whole(uid: str) -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 6), *(f"a{number}" for number in range(6)))
    await shop.run_rounds(5)
    assert shop.gates.ungated == []

    shop.wanted = (uid,)
    await shop.run_rounds(1)
    assert len(shop.gates.ungated) == 6
    assert await read_usage(shop) == 6


async def test_an_operator_releases_a_member_of_an_incomplete_group_alone() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 3), "a1", "a2")
    await shop.run_rounds(1)
    shop.wanted = ("a1",)
    await shop.run_rounds(1)
    assert shop.gates.ungated == ["a1"]


async def test_a_group_is_as_old_as_its_oldest_member() -> None:
    shop = GroupSimulation()
    await shop.create("w", "x", "y", "z")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 2), "a1")
    await shop.run_rounds(1)
    await shop.create("q")
    await shop.run_rounds(1)
    await shop.join(member_of("a", 2), "a2")
    await shop.run_rounds(1)
    rows = await shop.read_rows()
    assert [row.uid for row in sorted(rows.values(), key=lambda row: row.place)] == ["a1", "a2", "q"]


async def test_without_the_stanza_members_are_released_as_any_other_pods() -> None:
    shop = GroupSimulation(SERVICES.replace(", groups: {from: [Annotations, Job], waitFor: 5m}", ""))
    await shop.join(member_of("a", 9), "a1", "a2")
    await shop.run_rounds(1)
    assert sorted(shop.gates.ungated) == ["a1", "a2"]


async def test_a_policy_without_groups_lets_waiting_members_go() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 9), "a1", "a2")
    await shop.run_rounds(2)
    assert shop.gates.ungated == []
    shop.policy = GroupSimulation(SERVICES.replace(", groups: {from: [Annotations, Job], waitFor: 5m}", "")).policy
    await shop.run_rounds(2)
    assert sorted(shop.gates.ungated) == ["a1", "a2"]


async def test_a_group_is_refused_while_the_store_has_lost_charges() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2), "a1", "a2")
    shop.loop.on_lost()
    await shop.run_rounds(5)
    assert shop.gates.ungated == []
    await shop.run_rounds(10)
    assert sorted(shop.gates.ungated) == ["a1", "a2"]


def made_by(job: str) -> tuple[OwnerReference, ...]:
    return (OwnerReference(name="train", kind="Job", api_version="batch/v1", uid=job, controller=True),)


async def run_job(shop: GroupSimulation, **phases: str) -> None:
    """Release the Pods of a Job that are a group by their annotations, and let them end."""
    for index, uid in enumerate(phases):
        await shop.join(member_of("a", len(phases), str(index)), uid, owners=made_by("j1"))
    await shop.run_and_show(2)
    for uid, phase in phases.items():
        shop.end(uid, phase=phase)
    await shop.run_and_show(2)
    assert sorted(shop.gates.ungated) == sorted(phases)


async def test_a_member_that_is_made_again_does_not_wait_for_those_that_have_succeeded() -> None:
    shop = GroupSimulation()
    await run_job(shop, a1="Succeeded", a2="Failed", a3="Succeeded")
    await shop.join(member_of("a", 3, "1"), "a2-again", owners=made_by("j1"))
    await shop.run_and_show(2)
    assert "a2-again" in shop.gates.ungated


async def test_members_that_are_made_again_wait_for_each_other() -> None:
    shop = GroupSimulation(SERVICES.replace("pods: 4", "pods: 9"))
    await run_job(shop, a1="Failed", a2="Failed", a3="Succeeded")
    await shop.join(member_of("a", 3, "0"), "a1-again", owners=made_by("j1"))
    await shop.run_and_show(5)
    assert "a1-again" not in shop.gates.ungated
    rows = await shop.read_rows()
    assert rows["a1-again"].why == "1 of 2 members of its group are here; 1 of 3 has succeeded"

    await shop.join(member_of("a", 3, "1"), "a2-again", owners=made_by("j1"))
    await shop.run_and_show(2)
    assert {"a1-again", "a2-again"} <= set(shop.gates.ungated)


async def test_members_of_another_job_do_not_count_those_that_have_succeeded() -> None:
    shop = GroupSimulation()
    await run_job(shop, a1="Succeeded", a2="Succeeded")
    await shop.join(member_of("a", 2, "0"), "b1", owners=made_by("j2"))
    await shop.run_and_show(5)
    assert "b1" not in shop.gates.ungated


async def test_a_pod_of_a_job_beyond_a_group_that_has_succeeded_follows_singly() -> None:
    shop = GroupSimulation(SERVICES.replace("pods: 4", "pods: 9"))
    await run_job(shop, a1="Succeeded", a2="Succeeded")
    await shop.join(member_of("a", 2, "2"), "a3", owners=made_by("j1"))
    await shop.run_and_show(3)
    assert "a3" in shop.gates.ungated


async def join_attempt(shop: GroupSimulation, attempt: int, *jobs: str) -> None:
    """Create the Pod of each of these Jobs of a JobSet."""
    key = "jobset.sigs.k8s.io/restart-attempt"
    labels = {"app": "web", "podgate.io/service": "web", key: str(attempt)}
    shop.sizes["set"] = Size(2)
    for job in jobs:
        group = Membership(GroupSource.JOB_SET, "set", "set-uid", index=f"{job}/0")
        await shop.join(group, f"{job}{attempt}", owners=made_by(f"{job}-{attempt}"), labels=labels)


async def test_the_jobs_of_a_job_set_count_the_succeeded_pods_of_each_other() -> None:
    shop = GroupSimulation()
    await join_attempt(shop, 0, "driver", "worker")
    await shop.run_and_show(2)
    shop.end("driver0")
    shop.end("worker0", phase="Failed")
    group = Membership(GroupSource.JOB_SET, "set", "set-uid", index="worker/0")
    labels = shop.gates.pods["worker0"].metadata.labels
    await shop.join(group, "again", owners=made_by("worker-0"), labels=labels)
    await shop.run_and_show(2)
    assert sorted(shop.gates.ungated) == ["again", "driver0", "worker0"]


async def test_a_member_whose_attempt_is_relabelled_leaves_its_group() -> None:
    shop = GroupSimulation()
    await join_attempt(shop, 0, "driver")
    await shop.run_and_show(1)
    metadata = shop.gates.pods["driver0"].metadata
    labels = {**(metadata.labels or {}), "jobset.sigs.k8s.io/restart-attempt": "7"}
    shop.gates.pods["driver0"] = replace(shop.gates.pods["driver0"], metadata=replace(metadata, labels=labels))
    shop.show("driver0")
    await shop.run_and_show(1)
    await join_attempt(shop, 0, "worker")
    await shop.run_and_show(3)
    assert shop.gates.ungated == []


@pytest.mark.parametrize("has_ended", [False, True])
async def test_the_pods_of_another_attempt_of_a_job_set_are_a_new_group(*, has_ended: bool) -> None:
    shop = GroupSimulation()
    await join_attempt(shop, 0, "driver", "worker")
    await shop.run_and_show(2)
    if has_ended:
        shop.end("driver0")
    shop.delete("worker0")
    await join_attempt(shop, 1, "worker")
    await shop.run_and_show(5)
    assert "worker1" not in shop.gates.ungated  # the driver of the former attempt will be deleted, too

    await join_attempt(shop, 1, "driver")
    await shop.run_and_show(2)
    assert {"worker1", "driver1"} <= set(shop.gates.ungated)


async def begin_release(shop: GroupSimulation) -> None:
    """Release the first of two members; the API server refuses the gate of the other one."""
    shop.gates.refused.add("a2")
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_and_show(2)
    assert shop.gates.ungated == ["a1"]


def change_leader(shop: GroupSimulation) -> None:
    """Let another leader begin; the API server refuses nothing any more."""
    shop.gates.refused.clear()
    shop.lead()
    shop.show(*shop.gates.pods)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_new_leader_goes_on_with_a_group_whose_released_members_have_ended(phase: str) -> None:
    shop = GroupSimulation(SERVICES.replace("window: 64s", "window: 1h"))
    await begin_release(shop)
    shop.end("a1", phase=phase)
    change_leader(shop)
    await shop.run_and_show(5)
    assert shop.gates.ungated == ["a1", "a2"]
    assert await read_usage(shop) == 2


async def test_leaders_without_room_do_not_forget_a_group_whose_released_members_have_ended() -> None:
    shop = GroupSimulation()
    await begin_release(shop)
    shop.end("a1")
    await shop.run_and_show(100)  # its charge has left the window, which others fill
    change_leader(shop)
    await shop.create("w", "x", "y", "z")
    await shop.run_and_show(1)
    change_leader(shop)
    await shop.run_and_show(70)
    assert "a2" in shop.gates.ungated


async def test_a_new_leader_lets_pods_that_came_after_their_group_wait_for_each_other() -> None:
    shop = GroupSimulation()
    await shop.join(member_of("a", 2), "a1", "a2")
    await shop.run_and_show(2)
    shop.end("a1", "a2")
    await shop.run_and_show(5)
    await shop.join(member_of("a", 2), "a3")
    change_leader(shop)
    await shop.run_and_show(310)
    assert "a3" not in shop.gates.ungated

    await shop.join(member_of("a", 2), "a4")
    await shop.run_and_show(2)
    assert {"a3", "a4"} <= set(shop.gates.ungated)


async def test_a_new_leader_goes_on_after_wait_for_with_a_group_whose_released_members_are_gone() -> None:
    shop = GroupSimulation(SERVICES.replace("window: 64s", "window: 1h"))
    await begin_release(shop)
    shop.delete("a1")
    change_leader(shop)
    await shop.run_and_show(290)
    assert shop.gates.ungated == ["a1"]  # it may have been deleted before it was released, and its replacement comes
    await shop.run_and_show(20)
    assert shop.gates.ungated == ["a1", "a2"]
