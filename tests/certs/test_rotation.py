"""Rotation of CAs over virtual time: both peers always verify each other despite interruptions and late readers."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from certs.authority import BACKDATED, Authority, list_server_names
from certs.dual_port_rollover import RENEWAL_LIFETIME_SECONDS_MIN
from certs.lifetimes import Lifetimes, compute_renewal
from certs.rotation import Adopt, Drop, Issue, Make, MarkPublished, Publish, Step, find_due_steps
from tests.certs.ca_simulation import LEAF, NAME, PLACES, START, CaSimulation, faulty_round, names_of
from tests.core.strategies import examples

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
USUAL = Lifetimes.from_settle_max(365 * DAY, 14 * DAY, MINUTE)
SHORT = Lifetimes.from_settle_max(2 * MINUTE, MINUTE, MINUTE)

lifetimes = st.builds(
    lambda leaf, factor: Lifetimes.from_settle_max(leaf * factor, leaf, timedelta(minutes=5)),
    st.sampled_from((MINUTE, 12 * MINUTE, DAY, 14 * DAY)),
    st.sampled_from((2, 3, 6)),
)


def make_settled_simulation(lifetimes_used: Lifetimes) -> CaSimulation:
    """Return a simulation after the first round, when all readers have its result."""
    simulation = CaSimulation(lifetimes_used, min(lifetimes_used.settle, lifetimes_used.leaf / 10))
    simulation.settle()
    simulation.postpone_checks()
    simulation.advance(simulation.settled_at - simulation.now)
    return simulation


@examples(25)
@given(lifetimes_used=lifetimes, seed=st.integers(0, 2**32))
def test_leaf_always_verifies_against_every_published_bundle(lifetimes_used: Lifetimes, seed: int) -> None:
    random = Random(seed)  # noqa: S311  not for secrets
    simulation = make_settled_simulation(lifetimes_used)
    end, missed = simulation.now + 2 * lifetimes_used.ca + lifetimes_used.leaf, 0
    while simulation.now < end:
        simulation.advance(lifetimes_used.leaf / 25 * (0.2 + random.random()))
        assert simulation.failure() == ""
        for _ in range(random.randrange(3)):
            faulty_round(simulation, random)
            assert simulation.failure() == ""
        missed = missed + 1 if missed < 2 and random.random() < 0.2 else 0
        if not missed:
            simulation.settle(random.choice)
            assert simulation.failure() == ""


@examples(25)
@given(lifetimes_used=lifetimes, seed=st.integers(0, 2**32), jumps=st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_one_round_recovers_from_a_suspend_or_a_clock_correction(
    lifetimes_used: Lifetimes, seed: int, jumps: list[float]
) -> None:
    random = Random(seed)  # noqa: S311  not for secrets
    simulation = make_settled_simulation(lifetimes_used)
    for jump in jumps:
        simulation.now = max(START, simulation.now + lifetimes_used.ca * jump)
        simulation.forget_history()
        simulation.settle(random.choice)
        simulation.postpone_checks()
        for _ in range(40):
            simulation.advance(lifetimes_used.leaf / 40)
            simulation.settle()
            assert simulation.failure() == ""


def test_new_ca_is_published_before_its_first_leaf_and_the_old_removed_after_its_last() -> None:
    simulation = make_settled_simulation(USUAL)
    [old] = simulation.generations.now
    switches = []
    while old.certificate in {ca for cell in simulation.places.values() for ca in cell.now}:
        simulation.advance(timedelta(hours=6))
        while steps := simulation.due():
            step = steps[0]
            old_leaf = simulation.leaf.now
            simulation.apply(step)
            if isinstance(step, Issue) and step.signer.certificate != old.certificate:
                assert all(step.signer.certificate in cell.now for cell in simulation.places.values())
                switches.append((simulation.now, old_leaf))
    assert isinstance(simulation.done[-len(simulation.places) - 1][1], Drop)
    switched_at, last_old_leaf = switches[0]
    assert last_old_leaf is not None
    assert (
        last_old_leaf.certificate.not_valid_after_utc
        <= simulation.now
        < last_old_leaf.certificate.not_valid_after_utc + DAY
    )
    assert simulation.now - switched_at > USUAL.leaf / 4


def test_unwritable_bundle_prevents_a_new_ca_from_signing_and_no_renewal() -> None:
    """A CA counts as published only when it was read back from every configuration."""
    simulation = make_settled_simulation(USUAL)
    [old] = simulation.generations.now
    while simulation.now < START + 364 * DAY:
        simulation.advance(timedelta(hours=12))
        for _ in range(20):
            steps = [step for step in simulation.due() if step != Publish("policy")]
            if not steps:
                break
            simulation.apply(steps[0])
        assert simulation.failure() == ""
    assert len(simulation.generations.now) == 2
    assert {step.signer.certificate for _, step in simulation.done if isinstance(step, Issue)} == {old.certificate}
    expiries = [leaf.certificate.not_valid_after_utc for _, leaf in simulation.leaf.versions if leaf is not None]
    assert len(set(expiries)) == len(expiries), "each renewal has a later expiry"


def test_leaves_are_renewed_at_two_thirds_with_jitter_and_backdated_an_hour() -> None:
    shares, simulation = set(), CaSimulation(USUAL, USUAL.settle)
    simulation.settle()
    for _ in range(200):
        leaf = simulation.leaf.now
        assert leaf is not None
        certificate = leaf.certificate
        issued_at = certificate.not_valid_before_utc + BACKDATED
        lifetime = certificate.not_valid_after_utc - issued_at
        assert certificate.not_valid_before_utc == simulation.now - BACKDATED
        assert lifetime == USUAL.leaf
        shares.add(round((compute_renewal(certificate) - issued_at) / lifetime, 3))
        simulation.leaf.versions[-1] = (
            simulation.now,
            Authority.create(now=simulation.now).issue_server(
                NAME, list_server_names(NAME), USUAL.leaf, simulation.now
            ),
        )
    assert 2 / 3 - 0.051 < min(shares) < 2 / 3 < max(shares) < 2 / 3 + 0.051
    assert len(shares) > 50


def test_leaf_read_every_five_minutes_is_renewed_in_time_for_two_ports() -> None:
    ca = Authority.create(lifetime=timedelta(hours=1), now=START)
    left = {}
    for minutes in (1, 10, 15, 20, 60 * 24):
        leaf = ca.issue_client("kube-apiserver", lifetime=minutes * MINUTE, now=START).certificate
        left[minutes] = (leaf.not_valid_after_utc - compute_renewal(leaf)) / MINUTE
    assert left[15] == RENEWAL_LIFETIME_SECONDS_MIN / 60
    assert left[20] >= RENEWAL_LIFETIME_SECONDS_MIN / 60
    assert (left[1], left[10]) == (0.5, 5)


def test_ca_is_replaced_before_it_shortens_a_leaf() -> None:
    """A leaf that a CA's expiry shortens is a known cause of outages."""
    for lifetimes_used in (USUAL, SHORT, Lifetimes.from_settle_max(30 * DAY, 15 * DAY, MINUTE)):
        simulation = make_settled_simulation(lifetimes_used)
        while simulation.now < START + 6 * lifetimes_used.ca:
            simulation.advance(lifetimes_used.leaf / 60)
            simulation.settle()
            leaf = simulation.leaf.now
            assert leaf is not None
            if simulation.leaf.versions[-1][0] == simulation.now:
                assert leaf.certificate.not_valid_after_utc - simulation.now == lifetimes_used.leaf
        ca_creations = [at for at, step in simulation.done if isinstance(step, Make)]
        assert 6 <= len(ca_creations) <= 26
        assert len(simulation.generations.now) <= 4


def test_nothing_is_renewed_needlessly() -> None:
    simulation = make_settled_simulation(USUAL)
    while simulation.now < START + 365 * DAY:
        simulation.advance(timedelta(hours=1))
        simulation.settle()
    issued = [step for _, step in simulation.done if isinstance(step, Issue)]
    assert 365 / 14 * 1.3 < len(issued) < 365 / 14 * 1.75
    assert sum(isinstance(step, Make) for _, step in simulation.done) == 2


def test_changed_bundle_is_due_at_once() -> None:
    simulation = make_settled_simulation(USUAL)
    foreign = Authority.create().key_pair.certificate
    for drifted in (frozenset(), frozenset({foreign}), simulation.places["policy"].now | {foreign}):
        simulation.places["policy"].write(simulation.now, drifted)
        assert simulation.due() == (Publish("policy"),)
        simulation.settle()
        assert simulation.places["policy"].now == {generation.certificate for generation in simulation.generations.now}


def test_new_ca_missing_from_a_bundle_restarts_its_wait() -> None:
    simulation = make_settled_simulation(USUAL)
    while len(simulation.generations.now) == 1:
        simulation.advance(timedelta(hours=6))
        simulation.settle()
    [old, new] = simulation.generations.now
    assert new.published_at == simulation.now
    simulation.places["policy"].write(simulation.now, frozenset({old.certificate}))
    simulation.advance(USUAL.settle)
    assert simulation.due() == (MarkPublished(new, None),)
    simulation.settle()
    assert simulation.generations.now[1].published_at == simulation.now
    assert not simulation.generations.now[1].is_signing
    simulation.advance(USUAL.settle)
    simulation.settle()
    assert simulation.generations.now[1].is_signing
    assert simulation.generations.now[0].key is None, "a CA that no longer signs needs no key"


def test_place_that_cannot_be_read_does_not_restart_the_wait_of_a_new_ca() -> None:
    simulation = make_settled_simulation(USUAL)
    while len(simulation.generations.now) == 1:
        simulation.advance(timedelta(hours=6))
        simulation.settle()
    published_at = simulation.now
    simulation.advance(USUAL.settle)
    read = simulation.view()
    unread = replace(read, places={**read.places, "policy": (frozenset(),)}, unread=frozenset({"policy"}))
    assert find_due_steps(unread, USUAL, simulation.now) == (Publish("policy"),), "it does not sign meanwhile"
    [issue] = [step for step in simulation.due() if isinstance(step, Issue)]
    assert (issue.signer, issue.signer.published_at) == (simulation.generations.now[1], published_at)


def test_unrecorded_ca_stays_trusted_while_its_leaf_is_valid() -> None:
    """A deleted CA Secret loses the record: a new CA replaces the lost one without a failed call."""
    simulation = make_settled_simulation(USUAL)
    [lost] = simulation.generations.now
    simulation.generations.write(simulation.now, ())
    old_leaf = simulation.leaf.now
    while simulation.leaf.now is old_leaf:
        simulation.settle()
        assert simulation.failure() == ""
        simulation.advance(USUAL.settle / 4)
    assert [generation.certificate == lost.certificate for generation in simulation.generations.now] == [True, False]
    assert simulation.now - START < timedelta(minutes=5)
    simulation.advance(USUAL.leaf)
    simulation.settle()
    assert lost.certificate not in simulation.places["policy"].now


def test_with_an_unreadable_bundle_a_leaf_of_an_unknown_ca_stays_in_use() -> None:
    """An unreadable bundle may trust the unknown CA, so nothing is published or issued instead."""
    simulation = make_settled_simulation(USUAL)
    [lost] = simulation.generations.now
    simulation.generations.write(simulation.now, ())
    unreadable = {"unread": frozenset(PLACES), "places": dict.fromkeys(PLACES, (frozenset(),))}
    assert find_due_steps(replace(simulation.view(), **unreadable), USUAL, simulation.now) == (Make(),)
    simulation.apply(Make())
    unreadable_view = replace(simulation.view(), **unreadable)
    assert find_due_steps(unreadable_view, USUAL, simulation.now) == tuple(Publish(place) for place in sorted(PLACES))
    steps = find_due_steps(unreadable_view, USUAL, simulation.now + USUAL.leaf)
    assert [step.reason for step in steps if isinstance(step, Issue)] == ["it is not valid now"]
    simulation.settle()
    assert [generation.certificate == lost.certificate for generation in simulation.generations.now] == [True, False]
    assert simulation.failure() == ""


def test_ca_of_a_previous_leaf_stays_trusted_until_that_expires() -> None:
    """The record is lost twice: a late reader may still present the leaf of the first CA."""
    simulation = make_settled_simulation(USUAL)
    [lost] = simulation.generations.now
    old_leaf = simulation.leaf.now
    assert old_leaf is not None
    simulation.generations.write(simulation.now, ())
    simulation.settle()
    simulation.advance(USUAL.settle)
    simulation.settle()
    assert simulation.leaf.now is not old_leaf
    simulation.generations.write(simulation.now, ())

    def steps(now: datetime) -> Sequence[Step]:
        return find_due_steps(replace(simulation.view(), used=(old_leaf.certificate,)), USUAL, now)

    [first] = steps(simulation.now)
    simulation.apply(first)
    expiry = old_leaf.certificate.not_valid_after_utc
    assert steps(simulation.now) == (Adopt(lost.certificate, expiry),)
    assert not [step for step in steps(expiry) if isinstance(step, Adopt)]


def test_leaf_that_lacks_a_name_is_reissued() -> None:
    """The certificate needs every name that the API server uses."""
    simulation = make_settled_simulation(USUAL)
    simulation.names = (*simulation.names, *list_server_names("192.0.2.7"))
    [step] = simulation.due()
    assert isinstance(step, Issue)
    assert step.name == LEAF
    simulation.settle()
    assert simulation.leaf.now is not None
    assert set(list_server_names("192.0.2.7")) <= set(names_of(simulation.leaf.now.certificate))


def test_unusual_lifetimes_are_warnings_and_impossible_ones_errors() -> None:
    """Leaves of 7 to 30 days are usual."""
    assert (USUAL.list_remarks(), USUAL.find_mistake()) == ((), "")
    assert "less than 7 days" in SHORT.list_remarks()[0]
    assert "more than 30 days" in Lifetimes.from_settle_max(365 * DAY, 90 * DAY, MINUTE).list_remarks()[0]
    assert "twice" in Lifetimes.from_settle_max(20 * DAY, 14 * DAY, MINUTE).find_mistake()
