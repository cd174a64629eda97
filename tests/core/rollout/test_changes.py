"""Changes of a rollout that people are told, from two states in a row."""

import msgspec
import pytest
from msgspec.structs import replace

from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.policy_fields.rollout import RollbackRules, Rollout
from webhook.core.rollout.changes import RolloutChangeReason, list_changes
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState
from webhook.core.rollout.symptoms import Figures, Share, read_symptoms

OLD, NEW = "0" * 16, "1" * 16
SINCE = "2026-12-01T04:00:00Z"
ROLLOUT = msgspec.convert(
    {"shadow": {}, "canary": {"steps": [{"namespaces": ["staging-*"]}, {"percent": 5, "for": "1h"}]}},
    Rollout,
    dec_hook=convert_amount,
)
STABLE = RolloutState(OLD, governed=True)
SHADOW = RolloutState(OLD, governed=True, phase=Phase.SHADOW, candidate=NEW, since=SINCE)
FIRST = replace(SHADOW, phase=Phase.CANARY)
SECOND = replace(FIRST, step=1)
PROMOTED = RolloutState(NEW, governed=True)
REJECTED = STABLE.reject(Rejection(NEW, "too many Pending Pods", figures="9 of 100: above 8 %", at=SINCE))
BY_HAND = replace(STABLE.reject(Rejection(NEW, "INC-7", by="alice", at=SINCE)), pinned=Intervention("INC-7", "alice"))
ALERT = replace(SECOND, above_since={"pendingAlert": SINCE})


@pytest.mark.parametrize(
    ("former", "now", "told"),
    [
        (None, FIRST, []),
        (STABLE, STABLE, []),
        (STABLE, SHADOW, [("PolicyRolloutStarted", "shadow for 10m, then canary by Workload in 2 steps")]),
        (SHADOW, FIRST, [("PolicyStepReached", "step 1 of 2: namespaces staging-* for 10m")]),
        (STABLE, FIRST, [("PolicyRolloutStarted", "candidate"), ("PolicyStepReached", "step 1 of 2")]),
        (FIRST, SECOND, [("PolicyStepReached", "step 2 of 2: 5 % for 1h")]),
        (SECOND, PROMOTED, [("PolicyPromoted", f"policy {NEW} is in force, before it was {OLD}")]),
        (STABLE, PROMOTED, [("PolicyPromoted", "in force")]),
        (RolloutState(OLD), PROMOTED, []),
        (SECOND, REJECTED, [("PolicyRolledBack", "too many Pending Pods: 9 of 100: above 8 %: revert it in Git")]),
        (PROMOTED, BY_HAND, [("PolicyRolledBack", "INC-7, by alice")]),
        (SECOND, ALERT, [("PolicyPendingAlert", "16 of 100 (16.0 %) Pods Pending")]),
        (ALERT, ALERT, []),
        (SECOND, STABLE, []),
        (SECOND, replace(SECOND, waits_for="paused"), []),
    ],
)
def test_each_change_is_told_once(former: RolloutState | None, now: RolloutState, told: list[tuple[str, str]]) -> None:
    readings = read_symptoms(RollbackRules(), Figures(pending=Share(16, 100), unscheduled=16))
    changes = list_changes(former, now, ROLLOUT, readings)
    assert [change.reason for change in changes] == [reason for reason, _ in told]
    for change, (_, part) in zip(changes, told, strict=True):
        assert part in change.note
        assert change.policy_hash == NEW


def test_what_takes_back_and_what_alerts_is_a_warning() -> None:
    assert {reason for reason in RolloutChangeReason if reason.is_warning} == {"PolicyRolledBack", "PolicyPendingAlert"}


def test_without_its_rollout_a_change_is_told_too() -> None:
    [started, reached] = list_changes(STABLE, FIRST, None)
    assert (started.note.endswith("as its rollout says"), "step 1 of ?" in reached.note) == (True, True)
