"""Rotation over virtual time: with interruptions and late readers, both ends always verify each other."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from certs.authority import BACKDATED, Authority, server_names
from certs.lifetimes import Lifetimes, renewal
from certs.rotation import Adopt, Drop, Issue, Make, MarkPublished, Publish, Step, due
from tests.certs.ca_simulation import LEAF, NAME, PLACES, START, World, mishap, names_of
from tests.core.strategies import examples

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
USUAL = Lifetimes.of(365 * DAY, 14 * DAY, MINUTE)
SHORT = Lifetimes.of(2 * MINUTE, MINUTE, MINUTE)

lifetimes = st.builds(
    lambda leaf, factor: Lifetimes.of(leaf * factor, leaf, timedelta(minutes=5)),
    st.sampled_from((MINUTE, 12 * MINUTE, DAY, 14 * DAY)),
    st.sampled_from((2, 3, 6)),
)


def at_rest(lives: Lifetimes) -> World:
    """Return a world that has just been set up, and whose readers have read."""
    simulation = World(lives, min(lives.settle, lives.leaf / 10))
    simulation.settle()
    simulation.disturb()
    simulation.pass_by(simulation.calm_at - simulation.now)
    return simulation


@examples(25)
@given(lives=lifetimes, seed=st.integers(0, 2**32))
def test_leaf_always_verifies_against_every_published_bundle(lives: Lifetimes, seed: int) -> None:
    random = Random(seed)  # noqa: S311  nothing secret comes of it
    simulation = at_rest(lives)
    end, missed = simulation.now + 2 * lives.ca + lives.leaf, 0
    while simulation.now < end:
        simulation.pass_by(lives.leaf / 25 * (0.2 + random.random()))
        assert simulation.failing() == ""
        for _ in range(random.randrange(3)):
            mishap(simulation, random)
            assert simulation.failing() == ""
        missed = missed + 1 if missed < 2 and random.random() < 0.2 else 0
        if not missed:
            simulation.settle(random.choice)
            assert simulation.failing() == ""


@examples(25)
@given(lives=lifetimes, seed=st.integers(0, 2**32), jumps=st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_one_round_recovers_from_a_suspend_or_a_clock_correction(
    lives: Lifetimes, seed: int, jumps: list[float]
) -> None:
    random = Random(seed)  # noqa: S311  nothing secret comes of it
    simulation = at_rest(lives)
    for jump in jumps:
        simulation.now = max(START, simulation.now + lives.ca * jump)
        simulation.forget_the_past()
        simulation.settle(random.choice)
        simulation.disturb()
        for _ in range(40):
            simulation.pass_by(lives.leaf / 40)
            simulation.settle()
            assert simulation.failing() == ""


def test_new_ca_is_published_before_its_first_leaf_and_the_old_removed_after_its_last() -> None:
    """Checklist, 1."""
    simulation = at_rest(USUAL)
    [old] = simulation.line.now
    seen = []
    while old.certificate in {ca for cell in simulation.places.values() for ca in cell.now}:
        simulation.pass_by(timedelta(hours=6))
        while steps := simulation.due():
            step = steps[0]
            former = simulation.leaf.now
            simulation.take(step)
            if isinstance(step, Issue) and step.signer.certificate != old.certificate:
                assert all(step.signer.certificate in cell.now for cell in simulation.places.values())
                seen.append((simulation.now, former))
    assert isinstance(simulation.done[-len(simulation.places) - 1][1], Drop)
    switched_at, last = seen[0]
    assert last is not None
    assert last.certificate.not_valid_after_utc <= simulation.now < last.certificate.not_valid_after_utc + DAY
    assert simulation.now - switched_at > USUAL.leaf / 4


def test_unwritable_bundle_prevents_a_new_ca_from_signing_and_no_renewal() -> None:
    """Checklist, 1: read back from every configuration."""
    simulation = at_rest(USUAL)
    [old] = simulation.line.now
    while simulation.now < START + 364 * DAY:
        simulation.pass_by(timedelta(hours=12))
        for _ in range(20):
            steps = [step for step in simulation.due() if step != Publish("policy")]
            if not steps:
                break
            simulation.take(steps[0])
        assert simulation.failing() == ""
    assert len(simulation.line.now) == 2
    assert {step.signer.certificate for _, step in simulation.done if isinstance(step, Issue)} == {old.certificate}
    ends = [leaf.certificate.not_valid_after_utc for _, leaf in simulation.leaf.versions if leaf is not None]
    assert len(set(ends)) == len(ends), "a leaf that lives no longer than the one before is no renewal"


def test_leaves_are_renewed_at_two_thirds_with_jitter_and_backdated_an_hour() -> None:
    """Checklist, 2."""
    shares, simulation = set(), World(USUAL, USUAL.settle)
    simulation.settle()
    for _ in range(200):
        leaf = simulation.leaf.now
        assert leaf is not None
        certificate = leaf.certificate
        born = certificate.not_valid_before_utc + BACKDATED
        life = certificate.not_valid_after_utc - born
        assert certificate.not_valid_before_utc == simulation.now - BACKDATED
        assert life == USUAL.leaf
        shares.add(round((renewal(certificate) - born) / life, 3))
        simulation.leaf.versions[-1] = (
            simulation.now,
            Authority.create(now=simulation.now).issue_server(NAME, server_names(NAME), USUAL.leaf, simulation.now),
        )
    assert 2 / 3 - 0.051 < min(shares) < 2 / 3 < max(shares) < 2 / 3 + 0.051
    assert len(shares) > 50


def test_leaf_read_every_five_minutes_is_renewed_with_six_minutes_left() -> None:
    ca = Authority.create(lifetime=timedelta(hours=1), now=START)
    left = {}
    for minutes in (1, 10, 12, 16, 60 * 24):
        leaf = ca.issue_client("kube-apiserver", lifetime=minutes * MINUTE, now=START).certificate
        left[minutes] = (leaf.not_valid_after_utc - renewal(leaf)) / MINUTE
    assert left[12] == 6
    assert left[16] >= 6
    assert (left[1], left[10]) == (0.5, 5)


def test_ca_is_replaced_before_it_shortens_a_leaf() -> None:
    """Checklist, 2; and two outages of others: a CA that expired before its leaf, a rotator that turned only once."""
    for lives in (USUAL, SHORT, Lifetimes.of(30 * DAY, 15 * DAY, MINUTE)):
        simulation = at_rest(lives)
        while simulation.now < START + 6 * lives.ca:
            simulation.pass_by(lives.leaf / 60)
            simulation.settle()
            leaf = simulation.leaf.now
            assert leaf is not None
            if simulation.leaf.versions[-1][0] == simulation.now:
                assert leaf.certificate.not_valid_after_utc - simulation.now == lives.leaf
        made = [at for at, step in simulation.done if isinstance(step, Make)]
        assert 6 <= len(made) <= 26
        assert len(simulation.line.now) <= 4


def test_nothing_is_renewed_needlessly() -> None:
    simulation = at_rest(USUAL)
    while simulation.now < START + 365 * DAY:
        simulation.pass_by(timedelta(hours=1))
        simulation.settle()
    issued = [step for _, step in simulation.done if isinstance(step, Issue)]
    assert 365 / 14 * 1.3 < len(issued) < 365 / 14 * 1.75
    assert sum(isinstance(step, Make) for _, step in simulation.done) == 2


def test_changed_bundle_is_due_at_once() -> None:
    """Checklist, 6."""
    simulation = at_rest(USUAL)
    foreign = Authority.create().key_pair.certificate
    for drifted in (frozenset(), frozenset({foreign}), simulation.places["policy"].now | {foreign}):
        simulation.places["policy"].write(simulation.now, drifted)
        assert simulation.due() == (Publish("policy"),)
        simulation.settle()
        assert simulation.places["policy"].now == {one.certificate for one in simulation.line.now}


def test_new_ca_missing_from_a_bundle_restarts_its_wait() -> None:
    simulation = at_rest(USUAL)
    while len(simulation.line.now) == 1:
        simulation.pass_by(timedelta(hours=6))
        simulation.settle()
    [old, new] = simulation.line.now
    assert new.published_at == simulation.now
    simulation.places["policy"].write(simulation.now, frozenset({old.certificate}))
    simulation.pass_by(USUAL.settle)
    assert simulation.due() == (MarkPublished(new, None),)
    simulation.settle()
    assert simulation.line.now[1].published_at == simulation.now
    assert not simulation.line.now[1].is_signing
    simulation.pass_by(USUAL.settle)
    simulation.settle()
    assert simulation.line.now[1].is_signing
    assert simulation.line.now[0].key is None, "what signs no more needs no key"


def test_unrecorded_ca_stays_trusted_while_its_leaf_is_valid() -> None:
    """Somebody has deleted the CA's Secret: a new one takes over, and no call fails."""
    simulation = at_rest(USUAL)
    [lost] = simulation.line.now
    simulation.line.write(simulation.now, ())
    former = simulation.leaf.now
    while simulation.leaf.now is former:
        simulation.settle()
        assert simulation.failing() == ""
        simulation.pass_by(USUAL.settle / 4)
    assert [one.certificate == lost.certificate for one in simulation.line.now] == [True, False]
    assert simulation.now - START < timedelta(minutes=5)
    simulation.pass_by(USUAL.leaf)
    simulation.settle()
    assert lost.certificate not in simulation.places["policy"].now


def test_with_an_unreadable_bundle_a_leaf_of_an_unknown_ca_stays_in_use() -> None:
    """That place may trust it: what would be published or issued instead is not."""
    simulation = at_rest(USUAL)
    [lost] = simulation.line.now
    simulation.line.write(simulation.now, ())
    unread = {"unread": frozenset(PLACES), "places": dict.fromkeys(PLACES, (frozenset(),))}
    assert due(replace(simulation.view(), **unread), USUAL, simulation.now) == (Make(),)
    simulation.take(Make())
    blind = replace(simulation.view(), **unread)
    assert due(blind, USUAL, simulation.now) == tuple(Publish(place) for place in sorted(PLACES))
    steps = due(blind, USUAL, simulation.now + USUAL.leaf)
    assert [step.reason for step in steps if isinstance(step, Issue)] == ["it is not valid now"]
    simulation.settle()
    assert [one.certificate == lost.certificate for one in simulation.line.now] == [True, False]
    assert simulation.failing() == ""


def test_ca_of_a_previous_leaf_stays_trusted_until_that_expires() -> None:
    """The line is lost, and once more just after another CA has taken over: somebody may still show the first leaf."""
    simulation = at_rest(USUAL)
    [lost] = simulation.line.now
    former = simulation.leaf.now
    assert former is not None
    simulation.line.write(simulation.now, ())
    simulation.settle()
    simulation.pass_by(USUAL.settle)
    simulation.settle()
    assert simulation.leaf.now is not former
    simulation.line.write(simulation.now, ())

    def steps(now: datetime) -> Sequence[Step]:
        return due(replace(simulation.view(), used=(former.certificate,)), USUAL, now)

    [first] = steps(simulation.now)
    simulation.take(first)
    ends = former.certificate.not_valid_after_utc
    assert steps(simulation.now) == (Adopt(lost.certificate, ends),)
    assert not [step for step in steps(ends) if isinstance(step, Adopt)]


def test_leaf_that_lacks_a_name_is_reissued() -> None:
    """Checklist, 9: whatever the API server calls us by."""
    simulation = at_rest(USUAL)
    simulation.names = (*simulation.names, *server_names("192.0.2.7"))
    [step] = simulation.due()
    assert isinstance(step, Issue)
    assert step.name == LEAF
    simulation.settle()
    assert simulation.leaf.now is not None
    assert set(server_names("192.0.2.7")) <= set(names_of(simulation.leaf.now.certificate))


def test_unusual_lifetimes_are_warnings_and_impossible_ones_errors() -> None:
    """Checklist, 2: leaves of 7 to 30 days."""
    assert (USUAL.remarks(), USUAL.mistake()) == ((), "")
    assert "less than 7 days" in SHORT.remarks()[0]
    assert "more than 30 days" in Lifetimes.of(365 * DAY, 90 * DAY, MINUTE).remarks()[0]
    assert "twice" in Lifetimes.of(20 * DAY, 14 * DAY, MINUTE).mistake()
