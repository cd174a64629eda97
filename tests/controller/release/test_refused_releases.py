"""Pods whose release the API server refuses: shown with the reason, charged once in the end, and in nobody's way."""

import pytest

from tests.bench.opcode_counts import count_opcodes
from tests.controller.release.place_reporter import FakePlaceEvents
from tests.controller.release.queue_simulation import SECOND_US, WEB, QueueSimulation
from tests.controller.release.release_loop import read_usage
from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.place_reporter import PlaceReporter
from webhook.controller.release.pod_backoff import PodBackoff
from webhook.controller.release.queue_reader import QueueSelection
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.quota import CounterPlan
from webhook.core.reporting.queue_document import FailingPods, QueueDocument, WaitCause, render_depths
from webhook.errors import StoreUnavailableError

ROOMY = WEB.replace("pods: 2", "pods: 90").replace("maxPods: 9", "maxPods: 900")
TWO = ROOMY + WEB.replace("web", "batch").replace("shop", "batch")
SAID = "cannot release: HTTP 403: it is refused"


async def read_document(simulation: QueueSimulation, **asked: object) -> QueueDocument:
    return await simulation.loop.queue.make_document(QueueSelection(**asked))  # type: ignore[arg-type]


async def test_a_refused_pod_is_shown_with_the_reason_in_the_words_of_the_api_server() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.add("a")
    await simulation.create("a")
    await simulation.run_rounds(3.5)
    found = await read_document(simulation, uid="a")
    [row] = found.pods
    assert (found.waiting, row.cause, row.expected_at) == (1, WaitCause.RELEASE_FAILS, None)
    assert row.why == f"{SAID}; retrying since 2027-01-15T08:00:00.100Z"
    assert simulation.waiting == {"web": 1}
    [depth] = simulation.depths
    assert (depth.waiting, depth.oldest_seconds) == (1, 3)
    assert depth.failing == (FailingPods("forbidden", 1, f"pod shop/pod-a: {SAID}"),)
    status = render_depths(simulation.depths)
    assert status is not None
    assert status["services"][0]["failing"] == ({"reason": "forbidden", "pods": 1, "why": f"pod shop/pod-a: {SAID}"},)


async def test_others_are_released_and_shown_before_a_refused_pod() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.add("a")
    await simulation.create("a", "b", "c", "d")
    await simulation.run_rounds(3)
    rows = (await read_document(simulation)).pods
    assert simulation.gates.ungated == ["b", "c"]
    assert [(row.uid, row.place, row.cause) for row in rows] == [
        ("d", 1, WaitCause.QUOTA_EXCEEDED),
        ("a", 2, WaitCause.RELEASE_FAILS),
    ]
    assert rows[0].expected_at is not None
    await simulation.run_rounds(10)
    [row] = (await read_document(simulation, uid="a")).pods
    assert row.cause is WaitCause.QUOTA_EXCEEDED, "by now others have its room"
    assert simulation.depths[0].failing == ()


async def test_pods_without_an_answer_are_shown_first_for_they_hold_their_charge() -> None:
    simulation = QueueSimulation()
    simulation.gates.trouble = 99
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(3)
    rows = (await read_document(simulation)).pods
    assert [(row.uid, row.cause) for row in rows] == [
        ("a", WaitCause.RELEASE_FAILS),
        ("b", WaitCause.RELEASE_FAILS),
        ("c", WaitCause.QUOTA_EXCEEDED),
    ]
    assert simulation.depths[0].failing[0].reason == "unanswered"
    assert await read_usage(simulation) == 2


async def test_a_refused_pod_of_no_service_is_shown() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.add("alien")
    await simulation.create("alien", namespace="elsewhere")
    await simulation.run_rounds(2)
    [row] = (await read_document(simulation)).pods
    assert (row.uid, row.cause) == ("alien", WaitCause.RELEASE_FAILS)
    assert [(depth.service, depth.waiting, len(depth.failing)) for depth in simulation.depths] == [
        ("web", 0, 0),
        ("", 1, 1),
    ]


async def test_many_refused_pods_at_the_head_delay_no_other_pod_for_long() -> None:
    simulation = QueueSimulation(TWO)
    heads = [f"h{number:03}" for number in range(60)]
    simulation.gates.refused.update(heads)
    await simulation.create(*heads)
    await simulation.run_rounds(30)
    attempts = len(simulation.gates.refusals)
    await simulation.create("x", "y", namespace="batch")
    await simulation.run_rounds(0.3)
    assert simulation.gates.ungated == ["x", "y"], "another service does not notice"
    await simulation.create("good")
    await simulation.run_rounds(60)
    assert "good" in simulation.gates.ungated
    assert len(simulation.gates.refusals) - attempts < 60 + 2 * 16, "about one attempt a second"


async def test_refused_pods_are_released_once_each_when_the_cause_is_gone() -> None:
    simulation = QueueSimulation(ROOMY)
    uids = [f"p{number:02}" for number in range(40)]
    simulation.gates.refused.update(uids)
    await simulation.create(*uids)
    await simulation.run_rounds(200)
    assert (await read_usage(simulation), simulation.waiting) == (0, {"web": 40})
    simulation.gates.refused.clear()
    await simulation.run_rounds(62)
    assert sorted(simulation.gates.ungated) == uids
    assert (await read_usage(simulation), simulation.waiting) == (40, {"web": 0})
    assert len(simulation.released) == 40
    await simulation.run_rounds(1)
    assert simulation.depths[0].failing == ()
    assert simulation.index.times["web"] == {}


async def test_a_refusal_after_a_lost_answer_keeps_the_charge_of_a_pod_that_may_run() -> None:
    simulation = QueueSimulation()
    simulation.gates.trouble, simulation.gates.loses_answers = 1, True
    await simulation.create("a")
    await simulation.run_rounds()
    assert (simulation.gates.ungated, simulation.released) == (["a"], [])
    simulation.gates.refused.add("a")  # the right is taken away
    await simulation.run_rounds(3)
    simulation.observer.on_deleted("a")
    await simulation.run_rounds(40)
    assert await read_usage(simulation) == 1
    assert (simulation.waiting, (await read_document(simulation)).pods) == ({"web": 0}, ())


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_refused_pod_is_not_released_while_its_refund_may_be_done(*, is_done: bool) -> None:
    """Its service goes on meanwhile."""
    simulation = QueueSimulation(WEB.replace("64s", "1h"))
    refund, asked = simulation.store.refund, list[str]()

    async def lose_answers(plan: CounterPlan, uid: str) -> bool:
        asked.append(uid)
        found = await refund(plan, uid) if is_done or len(asked) > 3 else False
        if len(asked) <= 3:
            raise StoreUnavailableError("no answer in time")
        return found

    simulation.store.refund = lose_answers  # type: ignore[method-assign]  a store whose answers are lost
    simulation.gates.refused.add("a")
    await simulation.create("a")
    await simulation.run_rounds(0.3)
    simulation.gates.refused.clear()
    await simulation.create("b")
    await simulation.run_rounds(1.5)
    assert simulation.gates.ungated == ["b"]
    await simulation.create("c", "d")
    await simulation.run_rounds(30)
    assert len(asked) == 4
    assert (len(simulation.gates.ungated), await read_usage(simulation)) == (2, 2)


async def test_a_pod_that_is_deleted_while_it_is_refused_is_forgotten() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.update("ab")
    await simulation.create("a", "b")
    await simulation.run_rounds(2)
    simulation.delete("a")  # while it is set aside
    await simulation.run_rounds(3.3)
    remove = simulation.gates.remove

    async def remove_after_deletion(namespace: str, name: str, uid: str) -> bool:
        simulation.delete(uid)
        await simulation.loop.round()
        return await remove(namespace, name, uid)

    simulation.gates.remove = remove_after_deletion  # type: ignore[method-assign]
    await simulation.run_rounds(70)
    assert (simulation.waiting, await read_usage(simulation)) == ({"web": 0}, 0)
    assert simulation.gates.refusals.count("b") == 3, "not again for ever"


async def test_a_kept_pod_expires_once_also_when_its_release_is_refused() -> None:
    simulation = QueueSimulation(WEB.replace("maxWait: 10m", "maxWait: 30s, whenExpired: Keep"))
    simulation.gates.refused.add("c")
    await simulation.create("a", "b", "c")
    await simulation.run_rounds(120)
    assert simulation.expired == ["web"]


async def test_a_pod_that_changes_while_it_is_set_aside_is_tried_soon_and_as_it_is_now() -> None:
    simulation = QueueSimulation()
    simulation.gates.refused.add("a")
    await simulation.create("a")
    await simulation.run_rounds(60)
    simulation.gates.refused.clear()
    await simulation.create("a", annotations={"podgate.io/priority": "7"})
    [row] = (await read_document(simulation)).pods
    await simulation.run_rounds(2)
    assert simulation.gates.ungated == ["a"]
    assert row.since == "2027-01-15T08:00:00.000Z"


async def test_an_event_on_the_pod_says_that_its_release_is_refused() -> None:
    simulation, events = QueueSimulation(), FakePlaceEvents()
    simulation.gates.refused.add("a")
    await simulation.create("a")
    reporter = PlaceReporter(simulation.loop.queue, events)
    await simulation.run_rounds(3)
    await reporter.scan()
    [(uid, note)] = events.notes
    assert (uid, note.startswith(f"1st of 1 in bronze: {SAID}")) == ("a", True)
    await simulation.run_rounds(20)
    await reporter.scan()
    assert len(events.notes) == 1


def test_a_change_of_a_pod_that_is_set_aside_costs_the_same_however_many_are() -> None:
    def count(others: int) -> int:
        backoff = PodBackoff(lambda _: None)
        pods = [GatedPod(WaitingPod(f"{number}", "web", 0, {}), "shop", f"{number}", "") for number in range(others)]
        for pod in pods:
            backoff.add(pod, SECOND_US)
        opcodes, _ = count_opcodes(lambda: backoff.update_pod(pods[0]))
        return opcodes

    assert count(2000) == count(10)
