"""The view of the policy: a rollout in a sentence, and its figures against thresholds."""

from msgspec.structs import replace

from webhook.core.console_views.policy import build_policy
from webhook.core.console_views.status_document import ServerPage
from webhook.core.policy_fields.rollout import Canary, CanaryStep, RollbackRules, Rollout
from webhook.core.reporting.candidate_document import RolloutDocument, StoredRollout
from webhook.core.rollout.state import InForce, Intervention, Phase, Rejection, RolloutState

A, B = "a" * 16, "b" * 16
SERVER = ServerPage("0.1.0", "2026-12-01T04:00:00.000Z", ())
STANZA = Rollout(canary=Canary((CanaryStep(percent=1), CanaryStep(percent=50))), rollback=RollbackRules())
CANARY = RolloutState(
    A, governed=True, phase=Phase.CANARY, candidate=B, step=1, above_since={"pending": "2026-12-01T03:59:00Z"}
)


def read_headline(state: RolloutState, wished: str, in_force: InForce) -> str:
    stored = StoredRollout((), RolloutDocument.build(wished, in_force, state, STANZA))
    return build_policy(SERVER, stored, "").headline


def test_the_headline_says_what_happens() -> None:
    assert read_headline(CANARY, B, InForce(A, B)) == f"{B} is tried: canary step 2 of 2."
    stable = RolloutState(A, governed=True)
    assert read_headline(stable, A, InForce(A)) == f"No candidate: {A} is wished and in force."
    assert read_headline(stable, B, InForce(A)) == f"{B} is wished, and waits for the leader to begin."
    rejected = replace(stable, rejected=(Rejection(B, "Pending"),))
    assert (
        read_headline(rejected, B, InForce(A)) == f"{B}, the wished policy, was taken back: Pending. {A} is in force."
    )
    pinned = replace(stable, pinned=Intervention("INC-1", "ann"))
    assert read_headline(pinned, A, InForce(A)) == f"{A} is pinned: INC-1, by ann."
    assert build_policy(SERVER, None, "no cluster").headline == "There is no rollout to show."


def test_figures_have_their_thresholds_and_unknown_ones_say_so() -> None:
    stored = StoredRollout((), RolloutDocument.build(B, InForce(A, B), CANARY, STANZA))
    metrics = (
        'podgate_rollout_symptom_ratio{symptom="pending"} 0.09\npodgate_rollout_symptom_ratio{symptom="denied"} -0.01\n'
    )
    cells = build_policy(SERVER, stored, "", metrics).list_cells()
    assert (cells["pending/now"].text, cells["pending/since"].text) == ("9.0 %", "since 03:59:00 UTC")
    assert cells["pending/gauge"].attributes == {"width": "100", "data-state": "full"}
    assert cells["denied/gauge"].attributes == {"width": "0", "data-state": "low"}
    assert cells["startErrors/now"].text == "no data"
