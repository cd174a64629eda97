"""Events on waiting Pods: few, and each says something new."""

from tests.controller.release.manual_queue import PAUSE, under
from tests.controller.release.place_reporter import FakePlaceEvents
from tests.controller.release.queue_simulation import QueueSimulation
from webhook.controller.release.place_reporter import PlaceReporter, pause_seconds


async def reported(simulation: QueueSimulation, reporter: PlaceReporter, events: FakePlaceEvents) -> dict[str, str]:
    events.notes.clear()
    await simulation.rounds(1.1)  # places are shown for a second
    await reporter.scan()
    return dict(events.notes)


async def test_a_pod_is_told_its_place_once_until_it_halves_or_the_cause_changes() -> None:
    simulation, events = QueueSimulation(), FakePlaceEvents()
    await simulation.create("a", "b", "c", "d", "e", "f")
    reporter = PlaceReporter(simulation.loop.queue, events)
    assert await reported(simulation, reporter, events) == {}, "they may be released at once"
    await simulation.rounds(1)
    notes = await reported(simulation, reporter, events)
    assert sorted(notes) == ["c", "d", "e", "f"]
    assert notes["f"].startswith("4th of 4 in bronze, about 2m")
    assert notes["f"].endswith(": a limit of web is reached")
    assert await reported(simulation, reporter, events) == {}
    await simulation.rounds(64)  # c and d are released
    assert sorted(await reported(simulation, reporter, events)) == ["e", "f"]
    simulation.policy = under(simulation.policy, PAUSE)
    notes = await reported(simulation, reporter, events)
    assert notes["e"] == "1st of 2 in bronze: the queue is paused until 2027-01-15T09:00:00.000Z: INC-1 (alice)"


async def test_events_of_many_pods_are_dropped_and_counted() -> None:
    simulation, events = QueueSimulation(), FakePlaceEvents()
    simulation.policy = under(simulation.policy, PAUSE)
    await simulation.create(*(f"p{number:03}" for number in range(100)))
    reporter = PlaceReporter(simulation.loop.queue, events)
    await simulation.rounds(3)
    assert len(await reported(simulation, reporter, events)) == 40
    assert events.dropped == 60
    assert await reported(simulation, reporter, events) == {}


def test_scans_take_a_hundredth_of_the_time() -> None:
    assert (pause_seconds(0.001), pause_seconds(0.05), pause_seconds(9)) == (2, 5, 30)
