"""Queues as the leader shows them: places, causes, and release times that hold."""

import msgspec
import pytest

from tests.controller.release.queue_reader import read_document
from tests.controller.release.queue_simulation import WEB, QueueSimulation
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.quota import Acquire, Receipt
from webhook.core.reporting.queue_document import WaitCause, count_by_class, format_ordinal
from webhook.errors import StoreFault, StoreUnavailableError

HEAD = "pools: [{name: shared, windows: [{window: 64s, hard: {pods: 2}}], whenExceeded: Queue}]"
EACH = "  pool: shared\n  quota: {whenExceeded: Queue, queue: {maxWait: 1h}}\n"
POOL = (
    f"- name: web\n  match: {{namespaces: [shop]}}\n  slaClass: gold\n{EACH}"
    f"- name: batch\n  match: {{namespaces: [batch]}}\n{EACH}"
)


async def test_rows_are_in_the_order_of_release_with_their_causes() -> None:
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(1)
    await simulation.create("g1", "g2")
    await simulation.run_rounds(2)
    found = await read_document(simulation)
    assert [(pod.queue, pod.place, pod.place_text, pod.cause) for pod in found.pods] == [
        ("shared", 1, "1st of 2 in gold", WaitCause.QUOTA_EXCEEDED),
        ("shared", 2, "2nd of 2 in gold", WaitCause.QUOTA_EXCEEDED),
        ("shared", 3, "1st of 1 in bronze", WaitCause.QUOTA_EXCEEDED),
    ]
    assert found.pods[0].why == "a limit of pool shared is reached"
    assert [(service.service, service.waiting) for service in found.services] == [("web", 2), ("batch", 1)]
    assert count_by_class(found.services) == {"gold": (2, 2), "bronze": (1, 3)}
    assert (found.waiting, found.matching) == (3, 3)


async def test_no_limit_is_named_while_the_store_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    quota = "{standing: {hard: {pods: 1}}, whenExceeded: Queue, queue: {}}"
    simulation = QueueSimulation(f"- name: web\n  match: {{namespaces: [shop]}}\n  quota: {quota}\n")

    async def fail(_: Acquire) -> Receipt:
        raise StoreUnavailableError("no answer", StoreFault.TIMEOUT)

    monkeypatch.setattr(simulation.store, "acquire", fail)
    await simulation.create("a")
    await simulation.run_rounds(2)
    (row,) = (await read_document(simulation)).pods
    assert (row.cause, row.why) == (WaitCause.STORE_UNAVAILABLE, "the store of the counters gives no answer")
    assert row.expected_at is None


async def test_a_pod_is_shown_also_while_the_store_is_asked_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(10)
    acquire, asked_about = simulation.store.acquire, list[str]()

    async def look(asked: Acquire) -> Receipt:
        if asked.uid == "b3" and not asked_about:
            asked_about.append(asked.uid)
            found = await read_document(simulation)
            assert [(pod.uid, pod.place, pod.cause) for pod in found.pods] == [("b3", 1, WaitCause.QUOTA_EXCEEDED)]
            assert [service.oldest_seconds for service in found.services if service.waiting] == [10]
        return await acquire(asked)

    monkeypatch.setattr(simulation.store, "acquire", look)
    await simulation.run_rounds(1)
    assert asked_about


async def test_pods_that_a_leader_sees_first_while_the_store_gives_no_answer_are_shown() -> None:
    simulation = QueueSimulation(POOL, HEAD)
    simulation.index.is_available = False
    await simulation.create("a", "b")
    await simulation.run_rounds(1)
    found = await read_document(simulation)
    assert [(pod.name, pod.cause, pod.why) for pod in found.pods] == [
        (f"pod-{uid}", WaitCause.STORE_UNAVAILABLE, "the store of the counters gives no answer") for uid in "ab"
    ]
    assert (found.waiting, found.services[0].waiting, simulation.waiting["web"]) == (2, 2, 2)
    simulation.index.is_available = True
    await simulation.run_rounds(1)
    assert (await read_document(simulation)).waiting == 0


async def test_nothing_is_blamed_on_a_limit_or_on_others_while_the_store_may_have_lost_charges() -> None:
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch")
    await simulation.run_rounds(1)
    simulation.loop.on_lost()
    (row,) = (await read_document(simulation)).pods
    assert row.cause is WaitCause.STORE_UNAVAILABLE
    assert row.why.startswith("the store may have lost charges: nothing is released until 20")
    assert row.not_before is not None


async def test_pods_are_released_at_the_expected_moments() -> None:
    """The limit is 2 in 64 s, so the sixth Pod waits for the third window."""
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", namespace="batch")
    await simulation.run_rounds(10)
    await simulation.create("g1", "g2", "g3", "g4", "g5")
    await simulation.run_rounds(1)
    expected = {pod.uid: parse_microseconds(pod.expected_at or "") for pod in (await read_document(simulation)).pods}
    assert sorted(expected) == ["g1", "g2", "g3", "g4", "g5"]
    released: dict[str, int] = {}
    while len(released) < len(expected):
        await simulation.run_rounds(0.1)
        for uid in simulation.gates.ungated:
            if uid in expected:
                released.setdefault(uid, simulation.clock.now_us())
    late = {uid: (at_us - expected[uid]) / 1e6 for uid, at_us in released.items()}
    assert all(-2.5 < seconds < 2.5 for seconds in late.values()), late


async def test_live_pods_end_at_an_unknown_moment() -> None:
    simulation = QueueSimulation(
        WEB.replace("windows: [{window: 64s, hard: {pods: 2}}]", "standing: {hard: {pods: 0}}")
    )
    await simulation.store.mark_complete(simulation.policy.plans["web"], [""])
    await simulation.create("a")
    await simulation.run_rounds(1)
    [row] = (await read_document(simulation)).pods
    assert (row.cause, row.expected_at) == (WaitCause.LIVE_PODS, None)
    assert row.why == "the limit on live Pods of web is reached"
    assert row.expires_at is not None


async def test_a_selection_names_a_service_a_pod_or_a_number() -> None:
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", "b3", "b4", namespace="batch")
    await simulation.create("g1")
    await simulation.run_rounds(1)
    assert [pod.uid for pod in (await read_document(simulation, service="batch")).pods] == ["b2", "b3", "b4"]
    [entry] = (await read_document(simulation, uid="b4")).pods
    assert (entry.place, entry.place_text) == (3, "3rd of 3 in bronze")
    few = await read_document(simulation, limit=1)
    assert (len(few.pods), few.matching) == (1, 3)


def test_ordinals() -> None:
    assert [format_ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 111, 123)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th", "123rd")
    ]


async def test_a_row_shows_names_times_and_cause_and_nothing_else_of_the_pod() -> None:
    simulation = QueueSimulation(POOL, HEAD)
    await simulation.create("b1", "b2", "b3", namespace="batch", labels={"app": "web", "customer": "acme"})
    await simulation.run_rounds(1)
    [row] = msgspec.to_builtins(await read_document(simulation))["pods"]
    assert {*row} == {
        *("namespace", "name", "uid", "owner", "service", "class", "queue"),
        *("place", "classPlace", "classWaiting", "lifted", "cause", "why"),
        *("since", "waitingSeconds", "expectedAt", "expiresAt", "notBefore"),
    }
    assert "acme" not in str(row)
