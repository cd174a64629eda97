"""Fetched keys: schedule, rate, validity of the last ones, and reports."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.authentication.hostile_tokens.token_builder import ACCOUNT, BOUND, CLUSTER, World, certificate, good, key
from tests.harness.identity import signer
from tests.timeouts import HANG_SECONDS
from webhook.authentication.authenticator import Authenticator
from webhook.authentication.tokens.jwks_refresher import JwksRefresher, KeyClocks, RefreshReports, RefreshTiming
from webhook.authentication.tokens.jwks_union import JwksUnion
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
    """What is fetched from: answers when a test lets it."""

    keys: Mapping[str, TokenKey] = field(default_factory=dict)
    fails: str = ""
    asked: int = 0
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self) -> Mapping[str, TokenKey]:
        self.asked += 1
        await self.answering.wait()
        if self.fails:
            raise UserError(self.fails)
        return self.keys

    def publish(self, *kids: str, issuer: str | None = None) -> None:
        public = signer().key.public_key()
        self.keys = {kid: TokenKey(kid, "ES256", public, issuer) for kid in kids}
        self.answering.set()


@dataclass
class Fetching:
    keys: JwksRefresher
    publisher: Publisher
    clock: SetClock
    wall: SetClock
    told: list[str]

    async def round(self) -> None:
        """Let a fetch end that is under way."""
        self.publisher.answering.set()
        before = len(self.told)
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.told) == before:  # noqa: ASYNC110  there is nothing else to wait on
                await asyncio.sleep(0)


def fetching(pace: RefreshTiming = QUICK) -> Fetching:
    publisher, clock, wall, told = Publisher(), SetClock(), SetClock(5000.0), list[str]()
    reports = RefreshReports(
        lambda: told.append("fetched"), told.append, lambda reason: told.append(f"ended: {reason}")
    )
    keys = JwksRefresher(
        "url", publisher.fetch, KeyClocks(clock, wall), stale_max_seconds=STALE_MAX, reports=reports, pace=pace
    )
    return Fetching(keys, publisher, clock, wall, told)


@pytest.fixture
async def running() -> AsyncIterator[Fetching]:
    """Return one that has fetched a key named `a`, and does so again in an hour."""
    found = fetching()
    found.publisher.publish("a")
    task = asyncio.create_task(found.keys.run())
    await found.round()
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_before_the_first_fetch_missing_keys_are_reported() -> None:
    found = fetching()
    assert (found.keys.keys, found.keys.trouble) == ({}, "not fetched yet")


async def test_keys_are_there_once_they_are_fetched(running: Fetching) -> None:
    assert (list(running.keys.keys), running.keys.trouble, running.told) == (["a"], "", ["fetched"])


async def test_they_are_fetched_again_and_again() -> None:
    found = fetching(replace(QUICK, interval_seconds=0.001))
    found.publisher.publish("a")
    task = asyncio.create_task(found.keys.run())
    for _ in range(3):
        await found.round()
    task.cancel()
    assert found.publisher.asked >= 3


async def test_an_unknown_key_is_looked_for_at_once_and_found_for_the_call_that_brought_it(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.publish("a", "b")
    await running.keys.refetch()
    assert "b" in running.keys.keys


async def test_a_flood_of_unknown_keys_makes_one_fetch_in_a_cool_down(running: Fetching) -> None:
    for _ in range(100):
        await running.keys.refetch()
    assert running.publisher.asked == 1, "the first fetch has just been"
    for _ in range(3):
        running.clock.seconds += 5
        await asyncio.gather(*(running.keys.refetch() for _ in range(100)))
    assert running.publisher.asked == 4


async def test_callers_during_a_fetch_wait_for_that_fetch(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    waiting = [asyncio.create_task(running.keys.refetch()) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (running.publisher.asked, any(task.done() for task in waiting)) == (2, False)
    running.publisher.publish("b")
    await asyncio.gather(*waiting)
    assert (running.publisher.asked, list(running.keys.keys)) == (2, ["b"])


async def test_waiting_callers_are_bounded_and_others_answered_at_once(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    waiting = [asyncio.create_task(running.keys.refetch()) for _ in range(100)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 100 - QUICK.waiting_max
    running.publisher.answering.set()
    await asyncio.gather(*waiting)


async def test_callers_wait_no_longer_than_the_limit_and_the_fetch_continues() -> None:
    found = fetching(replace(QUICK, patience_seconds=0.01))
    await found.keys.refetch()
    assert found.keys.keys == {}
    found.publisher.publish("a")
    await found.round()
    assert list(found.keys.keys) == ["a"]


async def test_disconnected_caller_does_not_cancel_the_fetch_for_others(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.answering.clear()
    gone, stays = (asyncio.create_task(running.keys.refetch()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    running.publisher.publish("b")
    await stays
    assert list(running.keys.keys) == ["b"]


async def test_during_failed_fetches_the_last_keys_are_used_up_to_their_maximum_age(running: Fetching) -> None:
    generation = running.keys.generation
    running.publisher.fails = "HTTP 500"
    running.clock.seconds += 99
    await running.keys.refetch()
    assert (list(running.keys.keys), running.keys.generation, running.keys.trouble) == (["a"], generation, "HTTP 500")
    running.clock.seconds += 1
    assert running.keys.generation != generation, "caches hear of it before anybody asks for a key"
    assert running.keys.keys == {}


async def test_their_age_counts_from_when_they_were_asked_for(running: Fetching) -> None:
    running.clock.seconds += 10
    running.publisher.answering.clear()
    looking = asyncio.create_task(running.keys.refetch())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.clock.seconds += 50
    running.publisher.answering.set()
    await looking
    running.clock.seconds += 50
    assert running.keys.keys == {}


@pytest.mark.parametrize("which", ["the wall's clock alone", "the steady clock alone"])
async def test_keys_too_old_by_either_clock_are_not_used(running: Fetching, which: str) -> None:
    ahead, behind = (running.wall, running.clock) if which.startswith("the wall") else (running.clock, running.wall)
    behind.seconds -= 3600
    ahead.seconds += 99
    assert list(running.keys.keys) == ["a"]
    ahead.seconds += 1
    assert running.keys.keys == {}


async def test_that_the_last_keys_have_ended_is_reported_once_and_why(running: Fetching) -> None:
    running.publisher.fails = "HTTP 500"
    running.clock.seconds += 99
    await running.keys.refetch()
    assert running.told == ["fetched", "HTTP 500"]
    running.clock.seconds += 1
    for _ in range(3):
        assert running.keys.keys == {}
    assert running.told == ["fetched", "HTTP 500", "ended: HTTP 500"]


async def test_keys_expire_with_a_failed_fetch_without_a_caller(running: Fetching) -> None:
    running.publisher.fails = "HTTP 500"
    running.clock.seconds += 100
    await running.keys.refetch()
    assert running.told == ["fetched", "HTTP 500", "ended: HTTP 500"]


async def test_keys_that_end_before_any_fetch_has_failed_say_why_as_well(running: Fetching) -> None:
    running.wall.seconds += 3600
    assert (running.keys.keys, running.keys.trouble) == ({}, "the last ones are too old")
    assert running.told == ["fetched", "ended: the last ones are too old"]


async def test_expired_keys_are_used_again_after_a_fetch(running: Fetching) -> None:
    running.clock.seconds += 1000
    assert running.keys.keys == {}
    await running.keys.refetch()
    assert (list(running.keys.keys), running.keys.trouble) == (["a"], "")


async def test_unpublished_key_is_removed(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.publish("b")
    await running.keys.refetch()
    assert list(running.keys.keys) == ["b"]


async def test_the_same_keys_again_are_no_change(running: Fetching) -> None:
    generation = running.keys.generation
    running.clock.seconds += 5
    await running.keys.refetch()
    assert (running.publisher.asked, running.keys.generation) == (2, generation)


async def test_fetch_without_a_timely_response_fails() -> None:
    found = fetching(replace(QUICK, fetch_seconds=0.01))
    task = asyncio.create_task(found.keys.run())
    async with asyncio.timeout(HANG_SECONDS):
        while not found.told:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.001)
    assert (found.told, found.keys.trouble) == (["no answer within 0.01 s"], "no answer within 0.01 s")
    task.cancel()


async def test_after_a_failure_it_tries_again_soon_and_then_less_often() -> None:
    found = fetching(RefreshTiming())
    after_success = found.keys._pause_seconds(is_good=True)
    after_failure = [found.keys._pause_seconds(is_good=False) for _ in range(1000)]
    pauses = [after_success, *(after_failure[failures - 1] for failures in (1, 2, 3, 10, 1000))]
    longest = [STALE_MAX / 3, 1, 2, 4, STALE_MAX / 3, STALE_MAX / 3]
    assert all(0.8 * bound <= pause <= bound for pause, bound in zip(pauses, longest, strict=True)), pauses


async def test_issuers_that_keys_were_bound_to_stay_claimed_when_the_keys_are_gone(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.publish("b", issuer="https://a")
    await running.keys.refetch()
    running.clock.seconds += 1000
    assert (running.keys.keys, set(running.keys.claimed)) == ({}, {"https://a"})


async def test_an_issuer_that_the_keys_once_were_bound_to_stays_claimed_beside_a_new_one(running: Fetching) -> None:
    for kid, issuer in (("b", "https://a"), ("c", "https://b")):
        running.clock.seconds += 5
        running.publisher.publish(kid, issuer=issuer)
        await running.keys.refetch()
    assert set(running.keys.claimed) == {"https://a", "https://b"}


async def test_a_defect_while_fetching_ends_the_loop_which_is_begun_again_and_spares_the_callers() -> None:
    found = fetching()

    async def defective() -> Mapping[str, TokenKey]:
        raise LookupError

    broken = JwksRefresher("url", defective, KeyClocks(found.clock, found.wall), pace=QUICK)
    await broken.refetch()
    with pytest.raises(LookupError):
        await broken.run()


# With the authenticator


def admitting(found: Fetching) -> Authenticator:
    world = World()
    return Authenticator(world.identities, JwksUnion([found.keys]), world.clock)


async def test_the_first_call_with_a_new_key_is_admitted_after_one_fetch(running: Fetching) -> None:
    authenticator = admitting(running)
    token = [f"Bearer {good().token}"]
    with pytest.raises(AuthenticationError):
        await authenticator.authenticate_with_refresh(certificate("mine"), token)
    running.clock.seconds += 5
    public = key("ES256").key.public_key()
    running.publisher.keys = {"ES256": TokenKey("ES256", "ES256", public)}
    assert (await authenticator.authenticate_with_refresh(certificate("mine"), token)).role == "apiserver"
    assert running.publisher.asked == 2


async def test_keys_without_issuer_are_unused_until_the_first_fetch() -> None:
    found, world = fetching(), World()
    cluster = JwksRefresher(
        "cluster", found.publisher.fetch, KeyClocks(found.clock, found.wall), binds=True, pace=QUICK
    )
    authenticator = Authenticator(world.identities, JwksUnion([world.own, cluster]), world.clock)
    free, of_cluster, bound = [good()], [good(iss=CLUSTER, sub=ACCOUNT)], [good("ES256 bound", iss=BOUND)]

    def heard() -> list[str]:
        reasons = []
        for draft in (*free, *of_cluster, *bound):
            try:
                authenticator.authenticate(certificate("mine"), [f"Bearer {draft.token}"])
                reasons.append("good")
            except AuthenticationError as error:
                reasons.append(error.reason)
        return reasons

    assert heard() == ["key_issuer", "key_issuer", "good"]
    found.publisher.publish("c", issuer=CLUSTER)
    await cluster.refetch()
    assert heard() == ["good", "key_issuer", "good"]


@pytest.mark.parametrize("kid", ["", "a b", None, 7, "k" * 129])
async def test_invalid_kid_causes_no_fetch(running: Fetching, kid: object) -> None:
    running.clock.seconds += 5
    token = good().with_header(kid=kid).token
    with pytest.raises(AuthenticationError):
        await admitting(running).authenticate_with_refresh(certificate("mine"), [f"Bearer {token}"])
    assert running.publisher.asked == 1


async def test_verified_token_is_accepted_no_longer_than_its_keys(running: Fetching) -> None:
    running.clock.seconds += 5
    running.publisher.keys = {"ES256": TokenKey("ES256", "ES256", key("ES256").key.public_key())}
    await running.keys.refetch()
    authenticator, token = admitting(running), [f"Bearer {good().token}"]
    assert authenticator.authenticate(certificate("mine"), token).role == "apiserver"
    running.clock.seconds += 100
    with pytest.raises(AuthenticationError, match="unknown_key"):
        authenticator.authenticate(certificate("mine"), token)
