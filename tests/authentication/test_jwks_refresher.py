"""Fetched keys: schedule, rate, validity of the last ones, and reports."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.authentication.hostile_tokens.token_builder import (
    ACCOUNT,
    BOUND,
    CLUSTER,
    AuthenticatorSetup,
    certificate,
    good,
    key,
)
from tests.harness.identity import signer
from tests.timeouts import HANG_SECONDS
from webhook.authentication.authenticator import Authenticator
from webhook.authentication.jwks_refresher import JwksRefresher, KeyClocks, RefreshReports, RefreshTiming
from webhook.authentication.jwt import KeyNotFoundError
from webhook.authentication.published_keys import JwksUnion
from webhook.errors import AuthenticationError, UserError
from webhook.ports import TokenKey

STALE_MAX = 100
QUICK = RefreshTiming(
    interval_seconds=3600, fetch_seconds=60, first_pause_seconds=3600, cool_down_seconds=5, patience_seconds=60
)


@dataclass
class SetClock:
    seconds: float = 1000.0

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)


@dataclass
class Publisher:
    """A publisher of keys that answers when a test allows it."""

    keys: Mapping[str, TokenKey] = field(default_factory=dict)
    error: str = ""
    fetches: int = 0
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self) -> Mapping[str, TokenKey]:
        self.fetches += 1
        await self.answering.wait()
        if self.error:
            raise UserError(self.error)
        return self.keys

    def publish(self, *kids: str, issuer: str | None = None) -> None:
        public = signer().key.public_key()
        self.keys = {kid: TokenKey(kid, "ES256", public, issuer) for kid in kids}
        self.answering.set()


@dataclass
class RefresherSetup:
    keys: JwksRefresher
    publisher: Publisher
    clock: SetClock
    wall: SetClock
    reports: list[str]

    async def round(self) -> None:
        """Complete the current fetch."""
        self.publisher.answering.set()
        before = len(self.reports)
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.reports) == before:  # noqa: ASYNC110  there is nothing else to wait on
                await asyncio.sleep(0)


def refresher_setup(pace: RefreshTiming = QUICK) -> RefresherSetup:
    publisher, clock, wall, messages = Publisher(), SetClock(), SetClock(5000.0), list[str]()
    reports = RefreshReports(
        lambda: messages.append("fetched"), messages.append, lambda reason: messages.append(f"ended: {reason}")
    )
    keys = JwksRefresher(
        "url", publisher.fetch, KeyClocks(clock, wall), stale_max_seconds=STALE_MAX, reports=reports, pace=pace
    )
    return RefresherSetup(keys, publisher, clock, wall, messages)


@pytest.fixture
async def running() -> AsyncIterator[RefresherSetup]:
    """Return a refresher that has fetched key `a`; its next fetch is in an hour."""
    setup = refresher_setup()
    setup.publisher.publish("a")
    task = asyncio.create_task(setup.keys.run())
    await setup.round()
    yield setup
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_before_the_first_fetch_missing_keys_are_reported() -> None:
    setup = refresher_setup()
    assert (setup.keys.keys, setup.keys.trouble) == ({}, "not fetched yet")


async def test_keys_are_available_after_the_first_fetch(running: RefresherSetup) -> None:
    assert (list(running.keys.keys), running.keys.trouble, running.reports) == (["a"], "", ["fetched"])


async def test_keys_are_fetched_periodically() -> None:
    setup = refresher_setup(replace(QUICK, interval_seconds=0.001))
    setup.publisher.publish("a")
    task = asyncio.create_task(setup.keys.run())
    for _ in range(3):
        await setup.round()
    task.cancel()
    assert setup.publisher.fetches >= 3


async def test_unknown_key_is_fetched_at_once_for_the_call_that_needs_it(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.publish("a", "b")
    await running.keys.refetch()
    assert "b" in running.keys.keys


async def test_a_flood_of_unknown_keys_makes_one_fetch_in_a_cool_down(running: RefresherSetup) -> None:
    for _ in range(100):
        await running.keys.refetch()
    assert running.publisher.fetches == 1, "the first fetch was just made"
    for _ in range(3):
        running.clock.seconds += 5
        await asyncio.gather(*(running.keys.refetch() for _ in range(100)))
    assert running.publisher.fetches == 4


async def test_callers_during_a_fetch_wait_for_that_fetch(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    waiting = [asyncio.create_task(running.keys.refetch()) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (running.publisher.fetches, any(task.done() for task in waiting)) == (2, False)
    running.publisher.publish("b")
    await asyncio.gather(*waiting)
    assert (running.publisher.fetches, list(running.keys.keys)) == (2, ["b"])


async def test_waiting_callers_are_bounded_and_others_answered_at_once(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    waiting = [asyncio.create_task(running.keys.refetch()) for _ in range(100)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 100 - QUICK.waiting_max
    running.publisher.answering.set()
    await asyncio.gather(*waiting)


async def test_callers_wait_no_longer_than_the_limit_and_the_fetch_continues() -> None:
    setup = refresher_setup(replace(QUICK, patience_seconds=0.01))
    await setup.keys.refetch()
    assert setup.keys.keys == {}
    setup.publisher.publish("a")
    await setup.round()
    assert list(setup.keys.keys) == ["a"]


async def test_disconnected_caller_does_not_cancel_the_fetch_for_others(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    cancelled, remaining = (asyncio.create_task(running.keys.refetch()) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    running.publisher.publish("b")
    await remaining
    assert list(running.keys.keys) == ["b"]


async def test_during_failed_fetches_the_last_keys_are_used_up_to_their_maximum_age(running: RefresherSetup) -> None:
    generation = running.keys.generation
    running.publisher.error = "HTTP 500"
    running.clock.seconds += 99
    await running.keys.refetch()
    assert (list(running.keys.keys), running.keys.generation, running.keys.trouble) == (["a"], generation, "HTTP 500")
    running.clock.seconds += 1
    assert running.keys.generation != generation, "caches see the change before any lookup"
    assert running.keys.keys == {}


async def test_age_of_keys_counts_from_their_request(running: RefresherSetup) -> None:
    running.clock.seconds += 10
    running.publisher.answering.clear()
    refetching = asyncio.create_task(running.keys.refetch())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.clock.seconds += 50
    running.publisher.answering.set()
    await refetching
    running.clock.seconds += 50
    assert running.keys.keys == {}


@pytest.mark.parametrize("which", ["the wall's clock alone", "the steady clock alone"])
async def test_keys_too_old_by_either_clock_are_not_used(running: RefresherSetup, which: str) -> None:
    ahead, behind = (running.wall, running.clock) if which.startswith("the wall") else (running.clock, running.wall)
    behind.seconds -= 3600
    ahead.seconds += 99
    assert list(running.keys.keys) == ["a"]
    ahead.seconds += 1
    assert running.keys.keys == {}


async def test_expiry_of_the_last_keys_is_reported_once_with_its_cause(running: RefresherSetup) -> None:
    running.publisher.error = "HTTP 500"
    running.clock.seconds += 99
    await running.keys.refetch()
    assert running.reports == ["fetched", "HTTP 500"]
    running.clock.seconds += 1
    for _ in range(3):
        assert running.keys.keys == {}
    assert running.reports == ["fetched", "HTTP 500", "ended: HTTP 500"]


async def test_keys_expire_with_a_failed_fetch_without_a_caller(running: RefresherSetup) -> None:
    running.publisher.error = "HTTP 500"
    running.clock.seconds += 100
    await running.keys.refetch()
    assert running.reports == ["fetched", "HTTP 500", "ended: HTTP 500"]


async def test_keys_that_expire_before_a_failed_fetch_are_reported_with_a_cause(running: RefresherSetup) -> None:
    running.wall.seconds += 3600
    assert (running.keys.keys, running.keys.trouble) == ({}, "the last ones are too old")
    assert running.reports == ["fetched", "ended: the last ones are too old"]


async def test_expired_keys_are_used_again_after_a_fetch(running: RefresherSetup) -> None:
    running.clock.seconds += 1000
    assert running.keys.keys == {}
    await running.keys.refetch()
    assert (list(running.keys.keys), running.keys.trouble) == (["a"], "")


async def test_unpublished_key_is_removed(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.publish("b")
    await running.keys.refetch()
    assert list(running.keys.keys) == ["b"]


async def test_the_same_keys_again_are_no_change(running: RefresherSetup) -> None:
    generation = running.keys.generation
    running.clock.seconds += 5
    await running.keys.refetch()
    assert (running.publisher.fetches, running.keys.generation) == (2, generation)


async def test_fetch_without_a_timely_response_fails() -> None:
    setup = refresher_setup(replace(QUICK, fetch_seconds=0.01))
    task = asyncio.create_task(setup.keys.run())
    async with asyncio.timeout(HANG_SECONDS):
        while not setup.reports:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.001)
    assert (setup.reports, setup.keys.trouble) == (["no answer within 0.01 s"], "no answer within 0.01 s")
    task.cancel()


async def test_failed_fetches_are_retried_with_backoff() -> None:
    setup = refresher_setup(RefreshTiming())
    after_success = setup.keys._choose_pause_seconds(is_good=True)
    after_failure = [setup.keys._choose_pause_seconds(is_good=False) for _ in range(1000)]
    pauses = [after_success, *(after_failure[failures - 1] for failures in (1, 2, 3, 10, 1000))]
    longest = [STALE_MAX / 3, 1, 2, 4, STALE_MAX / 3, STALE_MAX / 3]
    assert all(0.8 * bound <= pause <= bound for pause, bound in zip(pauses, longest, strict=True)), pauses


async def test_issuer_of_expired_keys_stays_claimed(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.publish("b", issuer="https://a")
    await running.keys.refetch()
    running.clock.seconds += 1000
    assert (running.keys.keys, set(running.keys.claimed)) == ({}, {"https://a"})


async def test_former_issuer_of_keys_stays_claimed_beside_a_new_one(running: RefresherSetup) -> None:
    for kid, issuer in (("b", "https://a"), ("c", "https://b")):
        running.clock.seconds += 5
        running.publisher.publish(kid, issuer=issuer)
        await running.keys.refetch()
    assert set(running.keys.claimed) == {"https://a", "https://b"}


async def test_defect_while_fetching_ends_the_loop_and_affects_no_caller() -> None:
    setup = refresher_setup()

    async def defective() -> Mapping[str, TokenKey]:
        raise LookupError

    broken = JwksRefresher("url", defective, KeyClocks(setup.clock, setup.wall), pace=QUICK)
    await broken.refetch()
    with pytest.raises(LookupError):
        await broken.run()


# With the authenticator


def authenticator_of(setup: RefresherSetup) -> Authenticator:
    token_setup = AuthenticatorSetup()
    return Authenticator(token_setup.identities, JwksUnion([setup.keys]), token_setup.clock)


async def test_the_first_call_with_a_new_key_is_admitted_after_one_fetch(running: RefresherSetup) -> None:
    authenticator = authenticator_of(running)
    token = [f"Bearer {good().token}"]
    with pytest.raises(KeyNotFoundError):
        authenticator.authenticate(certificate("mine"), token)
    assert not await authenticator.refetch_keys()  # the keys have just been fetched
    running.clock.seconds += 5
    public = key("ES256").key.public_key()
    running.publisher.keys = {"ES256": TokenKey("ES256", "ES256", public)}
    assert await authenticator.refetch_keys()
    assert authenticator.authenticate(certificate("mine"), token).role == "apiserver"
    assert running.publisher.fetches == 2


async def test_keys_without_issuer_are_unused_until_the_first_fetch() -> None:
    setup, token_setup = refresher_setup(), AuthenticatorSetup()
    cluster = JwksRefresher(
        "cluster", setup.publisher.fetch, KeyClocks(setup.clock, setup.wall), binds=True, pace=QUICK
    )
    authenticator = Authenticator(token_setup.identities, JwksUnion([token_setup.own, cluster]), token_setup.clock)
    free, of_cluster, bound = [good()], [good(iss=CLUSTER, sub=ACCOUNT)], [good("ES256 bound", iss=BOUND)]

    def outcomes() -> list[str]:
        reasons = []
        for draft in (*free, *of_cluster, *bound):
            try:
                authenticator.authenticate(certificate("mine"), [f"Bearer {draft.token}"])
                reasons.append("good")
            except AuthenticationError as error:
                reasons.append(error.reason)
        return reasons

    assert outcomes() == ["key_issuer", "key_issuer", "good"]
    setup.publisher.publish("c", issuer=CLUSTER)
    await cluster.refetch()
    assert outcomes() == ["good", "key_issuer", "good"]


@pytest.mark.parametrize("kid", ["", "a b", None, 7, "k" * 129])
async def test_invalid_kid_causes_no_fetch(running: RefresherSetup, kid: object) -> None:
    running.clock.seconds += 5
    token = good().set_header(kid=kid).token
    with pytest.raises(AuthenticationError) as refused:
        authenticator_of(running).authenticate(certificate("mine"), [f"Bearer {token}"])
    assert not isinstance(refused.value, KeyNotFoundError)


async def test_verified_token_is_accepted_no_longer_than_its_keys(running: RefresherSetup) -> None:
    running.clock.seconds += 5
    running.publisher.keys = {"ES256": TokenKey("ES256", "ES256", key("ES256").key.public_key())}
    await running.keys.refetch()
    authenticator, token = authenticator_of(running), [f"Bearer {good().token}"]
    assert authenticator.authenticate(certificate("mine"), token).role == "apiserver"
    running.clock.seconds += 100
    with pytest.raises(AuthenticationError, match="unknown_key"):
        authenticator.authenticate(certificate("mine"), token)
