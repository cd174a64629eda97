"""Events on waiting Pods: few, and each says something new."""

from tests.controller.release.manual_queue import PAUSE, apply_override
from tests.controller.release.place_reporter import FakePlaceEvents
from tests.controller.release.queue_simulation import QueueSimulation
from webhook.controller.release.place_reporter import PlaceReporter, compute_pause_seconds


async def report_places(
    simulation: QueueSimulation, reporter: PlaceReporter, events: FakePlaceEvents
) -> dict[str, str]:
    events.notes.clear()
    await simulation.run_rounds(1.1)  # places are shown for a second
    await reporter.scan()
    return dict(events.notes)


async def test_a_pod_is_told_its_place_once_until_it_halves_or_the_cause_changes() -> None:
    simulation, events = QueueSimulation(), FakePlaceEvents()
    await simulation.create("a", "b", "c", "d", "e", "f")
    reporter = PlaceReporter(simulation.loop.queue, events)
    assert await report_places(simulation, reporter, events) == {}, "they may be released at once"
    await simulation.run_rounds(1)
    notes = await report_places(simulation, reporter, events)
    assert sorted(notes) == ["c", "d", "e", "f"]
    assert notes["f"].startswith("4th of 4 in bronze, about 2m")
    assert notes["f"].endswith(": a limit of web is reached")
    assert await report_places(simulation, reporter, events) == {}
    await simulation.run_rounds(64)  # c and d are released
    assert sorted(await report_places(simulation, reporter, events)) == ["e", "f"]
    simulation.policy = apply_override(simulation.policy, PAUSE)
    notes = await report_places(simulation, reporter, events)
    assert notes["e"] == "1st of 2 in bronze: the queue is paused until 2027-01-15T09:00:00.000Z: INC-1 (alice)"


async def test_events_of_many_pods_are_dropped_and_counted() -> None:
    simulation, events = QueueSimulation(), FakePlaceEvents()
    simulation.policy = apply_override(simulation.policy, PAUSE)
    await simulation.create(*(f"p{number:03}" for number in range(100)))
    reporter = PlaceReporter(simulation.loop.queue, events)
    await simulation.run_rounds(3)
    assert len(await report_places(simulation, reporter, events)) == 40
    assert events.dropped == 60
    assert await report_places(simulation, reporter, events) == {}


def test_scans_take_a_hundredth_of_the_time() -> None:
    assert (compute_pause_seconds(0.001), compute_pause_seconds(0.05), compute_pause_seconds(9)) == (2, 5, 30)
