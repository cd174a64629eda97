"""Advance of a rollout in virtual time, with the values that a stanza has by default."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds
from webhook.core.policy_fields.rollout import Rollout
from webhook.core.rollout.advance import Facts, advance
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState, decode_state, encode_state
from webhook.core.rollout.symptoms import Figures, Share

OLD, NEW, THIRD = "0" * 16, "1" * 16, "2" * 16
SECOND_US = 1_000_000
BEGIN_US = 1_800_000_000 * SECOND_US
STANZA = {
    "shadow": {"for": "10m"},
    "canary": {"steps": [{"namespaces": ["staging-*"], "for": "10m"}, {"percent": 1}, {"percent": 25}]},
    "rollback": {},
}
GOOD = Figures(Share(0, 100), 0, Share(0, 100), Share(0, 100), Share(0, 100), Share(0, 100))


def make_rollout(**fields: object) -> Rollout:
    stanza = {name: value for name, value in {**STANZA, **fields}.items() if value is not None}
    return msgspec.convert(stanza, Rollout, dec_hook=convert_amount)


def pending(part: int, total: int = 100) -> Figures:
    return replace(GOOD, pending=Share(part, total), unscheduled=part)


class Cluster:
    """The state and a leader, second by second. `kills`: each round is by a new leader, which has only the text."""

    def __init__(
        self, rollout: Rollout | None = None, *, kills: bool = False, state: RolloutState | None = None
    ) -> None:
        self.rollout = rollout
        self.state: RolloutState | None = state or RolloutState(OLD, governed=rollout is not None)
        self.now_us = BEGIN_US
        self.seen: list[RolloutState] = []
        self._kills = kills

    def run(self, seconds: int, figures: Figures = GOOD, wished: str = NEW) -> RolloutState:
        for _ in range(seconds):
            self.now_us += SECOND_US
            if self._kills and self.state is not None:
                self.state = decode_state(encode_state(self.state))
            former = self.state
            self.state = advance(
                self.state, self.rollout, Facts(wished, wished_governs=True, figures=figures), self.now_us
            )
            if self.state != former and self.state is not None:
                self.seen.append(self.state)
        assert self.state is not None
        return self.state

    def reach_canary(self) -> None:
        while self.run(1).phase is not Phase.CANARY:
            pass
        self.run(60)


@pytest.fixture(params=[False, True], ids=["one leader", "a leader for each second"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(make_rollout(), kills=request.param)


def test_a_good_candidate_goes_through_all_steps_and_is_promoted(cluster: Cluster) -> None:
    end = cluster.run(41 * 60)
    assert [(state.phase, state.step, state.candidate) for state in cluster.seen] == [
        (Phase.SHADOW, 0, NEW),
        *((Phase.CANARY, step, NEW) for step in range(3)),
        (Phase.STABLE, 0, ""),
    ]
    assert end == RolloutState(NEW, governed=True)
    began = [parse_microseconds(state.since) for state in cluster.seen[:4]]
    assert [later - earlier for earlier, later in pairwise(began)] == [600 * SECOND_US] * 3
    assert [state.began for state in cluster.seen] == [cluster.seen[0].since] * 4 + [""]


def test_nine_percent_pending_is_taken_back_after_three_minutes(cluster: Cluster) -> None:
    cluster.reach_canary()
    assert cluster.run(170, pending(9)).candidate == NEW
    end = cluster.run(20, pending(9))
    assert (end.stable, end.phase, end.candidate, end.above_since) == (OLD, Phase.STABLE, "", {})
    [rejection] = end.rejected
    assert (rejection.hash, rejection.reason) == (NEW, "too many Pending Pods")
    assert rejection.figures == ("9 of 100 (9.0 %) Pods Pending (9 not scheduled, 0 not started): above 8 % for 3m")


def test_nine_percent_pending_for_less_than_three_minutes_is_nothing(cluster: Cluster) -> None:
    cluster.reach_canary()
    cluster.run(170, pending(9))
    assert cluster.run(1, pending(8)).above_since == {}
    cluster.run(170, pending(9))
    assert cluster.run(30 * 60).stable == NEW


def test_a_step_does_not_end_while_a_symptom_is_above(cluster: Cluster) -> None:
    cluster.reach_canary()
    cluster.run(535)
    state = cluster.run(100, pending(9))
    assert (state.step, state.waits_for) == (0, f"pending: above 8 % since {state.above_since['pending']}")
    assert cluster.run(1).step == 1


def test_nineteen_pods_are_held_and_twenty_are_not(cluster: Cluster) -> None:
    cluster.reach_canary()
    state = cluster.run(60 * 60, pending(10, 19))
    assert (state.step, state.above_since) == (0, {})
    assert state.waits_for == "pending: no data: 19 Pods of the candidate, minPods is 20"
    assert cluster.run(1, pending(0, 20)).step == 1


def test_too_few_pods_do_not_hold_where_the_stanza_says_so() -> None:
    cluster = Cluster(make_rollout(whenNoData="Advance"))
    assert cluster.run(45 * 60, Figures()).stable == NEW


BLIND = [
    replace(GOOD, pending=None),
    replace(GOOD, denied=None),
    replace(GOOD, stable_denied=None),
    replace(GOOD, start_errors=None),
    Figures(),
]


@pytest.mark.parametrize("figures", BLIND)
def test_a_blind_leader_never_advances(cluster: Cluster, figures: Figures) -> None:
    cluster.reach_canary()
    state = cluster.run(60 * 60, figures)
    assert state.step == 0
    assert "not known" in state.waits_for
    assert cluster.run(1).step == 1


@pytest.mark.parametrize("blind", [1, 600])
@pytest.mark.parametrize(
    ("bad", "unseen"),
    [
        (pending(9), replace(GOOD, pending=None)),
        (pending(9), Figures()),
        (replace(GOOD, denied=Share(60, 1000)), replace(GOOD, denied=None, stable_denied=None)),
    ],
    ids=["the list of Pods", "all", "Redis"],
)
def test_a_symptom_that_is_out_of_sight_holds_though_steps_end_by_time(
    bad: Figures, unseen: Figures, blind: int
) -> None:
    """A new leader's first rounds are blind: the last step would promote what the next round takes back."""
    cluster = Cluster(make_rollout(whenNoData="Advance", shadow=None, canary={"steps": [{"percent": 1}]}), kills=True)
    cluster.run(595)
    above_since = cluster.run(100, bad).above_since
    state = cluster.run(blind, unseen)
    assert (state.candidate, state.above_since) == (NEW, above_since)
    [(name, since)] = above_since.items()
    assert state.waits_for.startswith(f"{name}: above ")
    assert f"since {since} when seen last: the number of " in state.waits_for
    assert [rejection.hash for rejection in cluster.run(120, bad).rejected] == [NEW]


def test_a_blind_leader_takes_nothing_back_and_forgets_nothing(cluster: Cluster) -> None:
    cluster.reach_canary()
    cluster.run(100, pending(9))
    assert cluster.run(100, Figures()).candidate == NEW
    assert cluster.run(1, pending(9)).rejected


def test_sixteen_percent_pending_is_an_alert_at_once(cluster: Cluster) -> None:
    cluster.reach_canary()
    state = cluster.run(1, pending(16))
    assert set(state.above_since) == {"pendingAlert", "pending"}
    assert state.candidate == NEW
    assert set(cluster.run(1, pending(15)).above_since) == {"pending"}


@pytest.mark.parametrize(
    ("figures", "seconds", "reason"),
    [
        (replace(GOOD, denied=Share(56, 1000), stable_denied=Share(5, 1000)), 180, "too many denied Pods"),
        (replace(GOOD, start_errors=Share(12, 100), stable_start_errors=Share(1, 100)), 300, "too many failed starts"),
    ],
)
def test_denials_and_failed_starts_above_stable_take_back(figures: Figures, seconds: int, reason: str) -> None:
    cluster = Cluster(make_rollout())
    cluster.reach_canary()
    assert cluster.run(seconds, figures).candidate == NEW
    assert cluster.run(5, figures).rejected[0].reason == reason


@pytest.mark.parametrize(
    "figures",
    [
        replace(GOOD, denied=Share(55, 1000), stable_denied=Share(5, 1000)),
        replace(GOOD, start_errors=Share(11, 100), stable_start_errors=Share(1, 100)),
        replace(GOOD, pending=Share(8, 100)),
    ],
)
def test_a_share_at_its_threshold_is_not_above(figures: Figures) -> None:
    cluster = Cluster(make_rollout())
    cluster.reach_canary()
    assert cluster.run(20 * 60, figures).above_since == {}


def test_a_stable_policy_with_few_pods_is_no_excuse() -> None:
    cluster = Cluster(make_rollout())
    cluster.reach_canary()
    figures = replace(GOOD, start_errors=Share(12, 100), stable_start_errors=Share(5, 19))
    assert cluster.run(310, figures).rejected


def test_a_rejected_policy_is_not_tried_again_until_it_is_forgotten(cluster: Cluster) -> None:
    cluster.reach_canary()
    cluster.run(200, pending(9))
    cluster.run(10, wished=OLD)
    state = cluster.run(10)
    assert (state.phase, state.waits_for) == (
        Phase.STABLE,
        f"{NEW} is wished and was taken back: it is not tried until podgate policy retry",
    )
    cluster.state = replace(state, rejected=())
    assert cluster.run(1).candidate == NEW


def test_the_stable_policy_wished_again_drops_the_candidate(cluster: Cluster) -> None:
    cluster.reach_canary()
    assert cluster.run(1, wished=OLD) == RolloutState(OLD, governed=True)


def test_a_third_policy_begins_anew(cluster: Cluster) -> None:
    cluster.reach_canary()
    state = cluster.run(1, wished=THIRD)
    assert (state.candidate, state.phase, state.step) == (THIRD, Phase.SHADOW, 0)
    assert state.since == format_rfc3339(cluster.now_us)


def test_a_paused_rollout_stays_and_its_symptoms_take_it_back(cluster: Cluster) -> None:
    cluster.reach_canary()
    assert cluster.state is not None
    cluster.state = replace(cluster.state, paused=Intervention("holidays"))
    state = cluster.run(60 * 60)
    assert (state.step, state.waits_for) == (0, "paused: holidays")
    assert cluster.run(185, pending(9)).rejected
    assert cluster.run(10, wished=THIRD).phase is Phase.STABLE


def test_a_pin_ends_when_the_stable_policy_is_wished() -> None:
    pinned = RolloutState(OLD, governed=True, pinned=Intervention("3 a.m."))
    cluster = Cluster(make_rollout(), state=pinned)
    state = cluster.run(60)
    assert (state.stable, state.phase) == (OLD, Phase.STABLE)
    assert state.waits_for.startswith("pinned")
    assert cluster.run(1, wished=OLD) == RolloutState(OLD, governed=True)
    assert cluster.run(1).candidate == NEW


def test_without_a_rollout_the_wish_is_stable_at_once() -> None:
    cluster = Cluster(None, state=RolloutState(OLD, paused=Intervention("holidays")))
    state = cluster.run(1)
    assert (state.stable, state.governed) == (NEW, True)


def test_without_a_rollout_a_rejected_wish_is_not_stable() -> None:
    rejected = RolloutState(OLD, rejected=(Rejection(NEW, "broken"),))
    assert Cluster(None, state=rejected).run(5).stable == OLD


def test_without_a_state_the_wish_is_stable_and_without_a_wish_nothing_is() -> None:
    assert advance(None, None, Facts(), BEGIN_US) is None
    assert advance(None, None, Facts(NEW), BEGIN_US) == RolloutState(NEW)


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.CANARY])
def test_an_unknown_wish_holds_the_candidate_and_says_so(cluster: Cluster, phase: Phase) -> None:
    before = cluster.run(1)
    while before.phase is not phase:
        before = cluster.run(1)
    held = cluster.run(20 * 60, wished="")
    assert held == replace(before, waits_for="a wished policy: the ConfigMap has no valid one")
    after = cluster.run(1)
    assert (after.candidate, after.waits_for) == (NEW, "")
    assert after.since > before.since, "the next step"


def test_an_unknown_wish_does_not_keep_a_symptom_from_taking_back(cluster: Cluster) -> None:
    """The ConfigMap was deleted, and another leader has started since."""
    cluster.reach_canary()
    cluster.run(30, pending(9))
    assert [rejection.hash for rejection in cluster.run(155, pending(9), wished="").rejected] == [NEW]
    assert cluster.run(60, wished="").stable == OLD


@pytest.mark.parametrize("pin", [None, Intervention("INC-1")])
def test_an_unknown_wish_changes_nothing_without_a_candidate(pin: Intervention | None) -> None:
    state = RolloutState(OLD, governed=True, pinned=pin)
    assert Cluster(make_rollout(), state=state).run(60, wished="") == state
    assert Cluster(state=replace(state, governed=False)).run(60, wished="") == replace(state, governed=False)


@pytest.mark.parametrize("since", ["", "yesterday", "2099-01-01T00:00:00Z"])
def test_a_time_that_says_nothing_begins_anew(since: str) -> None:
    state = RolloutState(
        OLD, governed=True, phase=Phase.CANARY, candidate=NEW, since=since, above_since={"pending": since}
    )
    cluster = Cluster(make_rollout(), state=state)
    after = cluster.run(2, pending(9))
    assert after.candidate == NEW
    assert {after.since, *after.above_since.values()} <= {format_rfc3339(BEGIN_US + n * SECOND_US) for n in (1, 2)}


def test_a_stanza_with_shadow_alone_promotes_after_it() -> None:
    cluster = Cluster(make_rollout(canary=None, rollback=None))
    assert cluster.run(605, Figures()) == RolloutState(NEW, governed=True)


def test_a_canary_without_rollback_ends_by_time() -> None:
    cluster = Cluster(make_rollout(shadow=None, rollback=None))
    assert cluster.run(3 * 601, Figures()).stable == NEW


# --- any course of events ---

Course = Sequence[tuple[int, Figures, str]]
COURSES = st.lists(
    st.tuples(
        st.sampled_from([1, 30, 170, 190, 601]),
        st.sampled_from([GOOD, pending(9), pending(16), pending(3, 19), Figures()]),
        st.sampled_from([NEW, NEW, NEW, OLD, THIRD, ""]),
    ),
    max_size=12,
)


def run_course(cluster: Cluster, course: Course) -> Iterator[RolloutState]:
    for seconds, figures, wished in course:
        yield cluster.run(seconds, figures, wished)


@given(COURSES)
def test_a_leader_killed_at_every_step_comes_to_the_same_end(course: Course) -> None:
    one, many = Cluster(make_rollout()), Cluster(make_rollout(), kills=True)
    assert list(run_course(one, course)) == list(run_course(many, course))
    assert one.seen == many.seen


@given(COURSES)
def test_what_is_in_force_is_never_one_that_was_taken_back(course: Course) -> None:
    for state in run_course(Cluster(make_rollout()), course):
        taken_back = {rejection.hash for rejection in state.rejected}
        assert not taken_back & {state.stable, state.candidate}
        assert (state.phase is Phase.STABLE) == (not state.candidate)
        assert state.candidate != state.stable


@given(COURSES)
def test_nothing_is_written_again_that_is_written(course: Course) -> None:
    cluster = Cluster(make_rollout())
    for _ in run_course(cluster, course):
        pass
    for former, later in pairwise(cluster.seen):
        assert former != later
    assert len(cluster.seen) <= 8 * (len(course) + 1)


def test_a_policy_that_is_wished_again_begins_again(cluster: Cluster) -> None:
    cluster.reach_canary()
    first = cluster.run(1)
    assert cluster.run(60, wished=OLD).began == ""
    cluster.reach_canary()
    again = cluster.run(1)
    assert parse_microseconds(again.began) - parse_microseconds(first.began) > 600 * SECOND_US
