"""What the controller does for one service costs the same however many others there are."""

from tests.bench.opcode_counts import count_opcodes
from webhook.controller.pending_sightings import PendingSightings
from webhook.core.pods.ownership import NOT_LIVE_US, OwnedPod


def count_question(services: int) -> int:
    """Return the opcodes of the question whether all of one service is sent, while others wait or are in flight."""
    pending = PendingSightings()
    found = OwnedPod("web", "shop", "n", {"pods": 1}, NOT_LIVE_US, 0, is_sure=True, is_labelled=True)
    for number in range(services):
        for uid in ("a", "b"):
            pending.put(f"s{number}", f"{uid}-{number}", found, number)
        pending.take(f"s{number}", 1)
    opcodes, is_sent = count_opcodes(lambda: pending.is_sent(pending.turn, "none"))
    assert is_sent
    return opcodes


def test_the_question_whether_a_service_is_sent_does_not_look_at_others() -> None:
    """It is asked for each service after each list."""
    assert count_question(1) == count_question(500)
