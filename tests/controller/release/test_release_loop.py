"""The release loop on a simulated cluster: charged once, released once, whatever fails in which order."""

from tests.controller.controller_simulation import compile_policy
from tests.controller.release.queue_simulation import WEB, QueueSimulation
from tests.controller.release.release_loop import read_usage


async def test_pods_are_released_as_their_limit_allows_oldest_first() -> None:
    simulation = QueueSimulation()
    for uid in ("a", "b", "c", "d", "e"):
        await simulation.create(uid)
        await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a", "b"]
    assert simulation.waiting == {"web": 3}
    await simulation.run_rounds(58)
    assert simulation.gates.ungated == ["a", "b"]
    await simulation.run_rounds(4)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]
    assert sorted(simulation.index.times["web"]) == ["e"]
    assert await read_usage(simulation) == 2


async def test_a_deleted_pod_leaves_and_is_never_charged() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds()
    simulation.delete("c")
    await simulation.run_rounds(66)
    assert simulation.gates.ungated == ["a", "b", "d"]
    assert await read_usage(simulation) == 1
    assert simulation.index.times["web"] == {}


async def test_a_pod_that_is_gone_when_its_gate_is_removed_is_refunded() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    del simulation.gates.pods["a"]  # the watch has not shown it yet
    await simulation.run_rounds(0.3)
    assert simulation.gates.ungated == ["b", "c"], "the refund makes room for another one"
    assert await read_usage(simulation) == 2


async def test_failed_patch_is_repeated_without_a_second_charge() -> None:
    simulation = QueueSimulation()
    simulation.gates.trouble = 3
    await simulation.create("a")
    await simulation.run_rounds(4)
    assert simulation.gates.ungated == ["a"]
    assert simulation.gates.unanswered == 3
    assert await read_usage(simulation) == 1


async def test_limit_holds_after_gates_could_not_be_removed_for_long() -> None:
    simulation = QueueSimulation()
    simulation.gates.trouble = 100_000
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds(200)
    assert simulation.gates.ungated == []
    assert await read_usage(simulation) <= 2, "no further Pod is charged meanwhile"
    simulation.gates.trouble = 0
    await simulation.run_rounds(40)
    assert len(simulation.gates.ungated) == 2
    await simulation.run_rounds(66)
    assert sorted(simulation.gates.ungated) == ["a", "b", "c", "d"]


async def test_a_new_leader_finds_the_charge_of_the_former_one() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    plan = simulation.policy.plans["web"]
    simulation.gates.trouble = 99
    await simulation.run_rounds()  # both are charged, and their gates stay
    simulation.gates.trouble = 0
    assert await read_usage(simulation) == 2
    simulation.lead()
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a", "b"]
    assert await read_usage(simulation) == 2
    assert set(await simulation.index.list_waiting(plan)) == {"c"}


async def test_a_lost_index_is_rebuilt_from_the_gates() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds()
    simulation.index.times.clear()
    simulation.lead()
    await simulation.run_rounds(1)
    assert set(simulation.index.times["web"]) == {"c", "d"}
    await simulation.run_rounds(66)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]


async def test_a_running_leader_restores_a_lost_index() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds(1)
    times = dict(simulation.index.times["web"])
    simulation.index.times.clear()
    await simulation.run_rounds(11)
    assert simulation.index.times["web"] == times


async def test_pods_that_were_gated_while_the_store_was_away_are_released_in_order_afterwards() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b")
    await simulation.run_rounds(1)
    for uid in ("c", "d", "e"):
        await simulation.create(uid)
        del simulation.index.times["web"][uid]  # it was not registered
        simulation.index.is_available = False
        await simulation.run_rounds(1)
    simulation.delete("d")
    await simulation.run_rounds(60)
    assert simulation.gates.ungated == ["a", "b"]
    assert simulation.waiting == {"web": 2}, "those that are not registered are counted, too"
    simulation.index.is_available = True
    await simulation.run_rounds(10)
    assert simulation.gates.ungated == ["a", "b", "c", "e"]
    assert simulation.index.times["web"] == {}


async def test_registered_pods_that_were_never_created_leave_the_index() -> None:
    simulation = QueueSimulation()
    await simulation.index.register(simulation.policy.plans["web"], "never")
    await simulation.run_rounds(59)
    assert set(simulation.index.times["web"]) == {"never"}
    await simulation.run_rounds(12)
    assert simulation.index.times["web"] == {}


async def test_a_pod_expires_after_max_wait_and_is_deleted() -> None:
    simulation = QueueSimulation(WEB.replace("maxWait: 10m", "maxWait: 30s"))
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(31)
    assert (simulation.gates.deleted, simulation.expired) == (["c"], ["web"])
    assert simulation.waiting == {"web": 0}


async def test_a_pod_that_is_kept_after_max_wait_waits_on() -> None:
    simulation = QueueSimulation(WEB.replace("maxWait: 10m", "maxWait: 30s, whenExpired: Keep"))
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(60)
    assert (simulation.gates.deleted, simulation.expired, simulation.waiting) == ([], ["web"], {"web": 1})
    assert set(simulation.index.times["web"]) == {"c"}, "it counts in maxPods"
    simulation.policy = compile_policy(WEB.replace("maxWait: 10m", "maxWait: 90s, whenExpired: Keep"))
    simulation.list_all()
    await simulation.run_rounds(10)
    assert (simulation.gates.ungated, simulation.expired) == (["a", "b", "c"], ["web"])


async def test_pods_of_a_service_that_no_longer_queues_are_released_at_its_rate() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d", "e")
    await simulation.run_rounds()

    simulation.policy = compile_policy(WEB.replace("Queue", "Deny").replace(", queue: {maxPods: 9, maxWait: 10m}", ""))
    simulation.list_all()
    await simulation.run_rounds(10)
    assert simulation.gates.ungated == ["a", "b"]
    await simulation.run_rounds(56)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]


async def test_a_gated_pod_of_no_service_is_released_at_once_and_charged_nothing() -> None:
    simulation = QueueSimulation()
    await simulation.create("alien", namespace="elsewhere")
    await simulation.run_rounds()
    assert simulation.gates.ungated == ["alien"]
    assert await read_usage(simulation) == 0


HEAD = "pools: [{name: shared, windows: [{window: 64s, hard: {pods: 2}}], whenExceeded: Queue}]"
EACH = "  pool: shared\n  quota: {whenExceeded: Queue, queue: {}}\n"
GOLD_AND_BRONZE = (
    f"- name: web\n  match: {{namespaces: [shop]}}\n  slaClass: gold\n{EACH}"
    f"- name: batch\n  match: {{namespaces: [batch]}}\n{EACH}"
)


async def test_nothing_is_released_or_forgotten_before_the_list_of_a_new_leader_is_complete() -> None:
    simulation = QueueSimulation(GOLD_AND_BRONZE, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(0.5)
    assert simulation.gates.ungated == ["b1", "b2"]
    registered_us = simulation.clock.now_us()
    await simulation.create("g1", "g2")
    await simulation.run_rounds(63)  # registered for so long, it would be forgotten if it did not exist
    simulation.begin_term()
    simulation.observer.on_list_begun(simulation.policy)
    simulation.list_page("b3")
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["b1", "b2"], "gold may be on a later page"
    assert simulation.index.times == {
        "batch": {"b3": registered_us - 500_000},
        "web": {"g1": registered_us, "g2": registered_us},
    }
    simulation.list_page("g1", "g2")
    simulation.observer.on_list_complete()
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["b1", "b2", "g1", "g2"]


async def test_a_later_list_shows_its_new_pods_together_and_holds_up_no_known_one() -> None:
    simulation = QueueSimulation(GOLD_AND_BRONZE, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(1)
    simulation.observer.on_list_begun(simulation.policy)
    await simulation.create("b4", namespace="batch")
    await simulation.run_rounds(66)
    assert simulation.gates.ungated == ["b1", "b2", "b3"]
    await simulation.create("g1")
    simulation.observer.on_list_complete()
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["b1", "b2", "b3", "g1"]


async def test_gold_is_released_before_bronze_in_a_pool() -> None:
    simulation = QueueSimulation(GOLD_AND_BRONZE, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(1)
    await simulation.create("g1", "g2", "g3")
    await simulation.run_rounds(66)
    assert simulation.gates.ungated == ["b1", "b2", "g1", "g2"]
    assert simulation.waiting == {"batch": 1, "web": 1}


async def test_releases_are_paced_and_queues_take_turns() -> None:
    services = "".join(
        f"- name: {name}\n  match: {{namespaces: [{space}]}}\n"
        "  quota: {windows: [{window: 64s, hard: {pods: 900}}], whenExceeded: Queue, queue: {}}\n"
        for name, space in (("web", "shop"), ("batch", "batch"))
    )
    simulation = QueueSimulation(services, rate=10)
    await simulation.create(*(f"w{number}" for number in range(40)))
    await simulation.create(*(f"b{number}" for number in range(40)), namespace="batch")
    await simulation.run_rounds(3)
    released = simulation.gates.ungated
    assert 30 <= len(released) <= 33  # and those of 250 ms, which were saved up
    assert 12 <= sum(uid.startswith("b") for uid in released) <= 20
    await simulation.run_rounds(6)
    assert len(released) == 80


async def test_pods_that_fit_are_charged_together() -> None:
    simulation = QueueSimulation(WEB.replace("pods: 2", "pods: 90"))
    await simulation.create(*(f"p{number:02}" for number in range(40)))
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == [f"p{number:02}" for number in range(40)]
    assert simulation.store.charged_together == [1, 2, 4, 8, 1, 16, 8]  # at most 16 in a round
    simulation.store.charged_together.clear()
    await simulation.create(*(f"q{number:02}" for number in range(60)))
    await simulation.run_rounds(4)
    assert len(simulation.gates.ungated) == 90, "the window is full"
    assert simulation.store.charged_together[-3:] == [1, 1, 1], "only the first is tried again"


async def test_pods_that_cannot_be_deleted_hinder_no_release() -> None:
    simulation = QueueSimulation(WEB.replace("maxWait: 10m", "maxWait: 70s"))
    await simulation.create("a", "b", "c", "d", "e")
    await simulation.run_rounds(63)
    simulation.gates.refused.add("e")
    await simulation.create("f")
    await simulation.run_rounds(14)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]
    assert simulation.gates.refusals == ["e", "e"], "again after five seconds, then after ten"
    assert simulation.expired == []
    simulation.gates.refused.clear()
    await simulation.run_rounds(10)
    assert (simulation.gates.deleted, simulation.expired) == (["e"], ["web"])


async def test_a_pod_that_the_api_server_refuses_hinders_no_other() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.add("a")
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["b", "c"]
    assert await read_usage(simulation) == 2, "its charge is refunded"
    assert simulation.waiting == {"web": 2}, "it is shown"
    simulation.gates.refused.clear()
    await simulation.run_rounds(66)
    assert simulation.gates.ungated == ["b", "c", "a", "d"], "it keeps its place"


async def test_a_service_whose_gates_cannot_be_removed_holds_up_no_other() -> None:
    services = WEB + WEB.replace("web", "batch").replace("shop", "batch")
    simulation = QueueSimulation(services)
    await simulation.create("a", "b")
    simulation.gates.trouble = 2
    await simulation.run_rounds()
    await simulation.create("c")
    await simulation.create("x", namespace="batch")
    await simulation.run_rounds()
    assert simulation.gates.ungated == ["x"]
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["x", "a", "b"]


async def test_few_pods_are_charged_while_all_removals_are_refused() -> None:
    """Podgate lacks the right, for example: no storm of charges, patches and refunds."""
    simulation = QueueSimulation(WEB.replace("pods: 2", "pods: 90").replace("maxPods: 9", "maxPods: 90"))
    uids = [f"p{number}" for number in range(80)]
    simulation.gates.refused.update(uids)
    await simulation.create(*uids)
    await simulation.run_rounds(10)
    assert simulation.gates.ungated == []
    assert len(simulation.gates.refusals) <= 16 + 10
    simulation.gates.refused.clear()
    await simulation.run_rounds(10)
    assert sorted(simulation.gates.ungated) == sorted(uids)


async def test_pods_that_the_watch_shows_while_the_store_is_unavailable_are_released_afterwards() -> None:
    simulation = QueueSimulation()
    simulation.index.is_available = False
    await simulation.create("a", "b")
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == []
    simulation.index.is_available = True
    await simulation.run_rounds(1)
    assert simulation.gates.ungated == ["a", "b"]


async def test_latency_is_from_the_moment_at_which_a_pod_may_be_released() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c", "d", "e")
    await simulation.run_rounds(70)
    assert simulation.gates.ungated == ["a", "b", "c", "d"]
    assert max(simulation.latencies) <= 0.2, "not since their creation"
    simulation.gates.trouble = 6
    await simulation.run_rounds(70)
    assert simulation.gates.ungated == ["a", "b", "c", "d", "e"]
    assert simulation.latencies[-1] > 4, "the API server did not answer"


async def test_after_a_loss_nothing_is_released_before_the_last_minute_is_charged_again() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(30)
    simulation.index.times.clear()
    simulation.store.lose()
    await simulation.run_rounds(9.5)
    assert await read_usage(simulation) == 2, "its own releases are charged again"
    assert set(simulation.index.times["web"]) == {"c"}
    await simulation.run_rounds(20)
    assert simulation.gates.ungated == ["a", "b"], "those of the last minute count"
    await simulation.run_rounds(10)
    assert simulation.gates.ungated == ["a", "b", "c"]


async def test_an_answer_that_reveals_a_loss_releases_nothing() -> None:
    simulation = QueueSimulation()
    await simulation.create("a", "b")
    await simulation.run_rounds(70)
    await simulation.create("c")
    simulation.store.loses_at_next_answer = True
    await simulation.run_rounds(9)
    assert simulation.gates.ungated == ["a", "b"]
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["a", "b", "c"]
