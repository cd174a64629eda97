"""The named seams: everything that the decision needs from the world comes in through one of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from webhook.core.breaker import BreakerView, Transition
from webhook.core.decision import Decision
from webhook.core.document import Loaded, Purpose
from webhook.core.policy import LoadedPolicy
from webhook.core.policy_review import PolicyReview, Question
from webhook.core.quota import Acquire, Booking, CounterPlan, Look, Receipt
from webhook.core.review import Request


class Clock(Protocol):
    """Time."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch; never goes back."""
        ...


class PolicySource(Protocol):
    """Where policies come from. What it hands out has been checked."""

    def current(self) -> LoadedPolicy | None:
        """Return the policy in force, None where there is no good one yet."""
        ...

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        """Return a policy that was in force within the last 60 s, by its hash."""
        ...

    async def refresh(self) -> None:
        """Read the source once, now; concurrent callers share one reading."""
        ...


class PolicyCheck(Protocol):
    """Checks documents where no review has to wait for it. CheckFailedError where nothing came of it."""

    async def load(self, raw: bytes, purpose: Purpose) -> Loaded:
        """Return, or raise DocumentError, as `webhook.core.document.load`."""
        ...

    async def weigh(self, asked: Question) -> PolicyReview:
        """Return what `webhook.core.policy_review.weigh` does."""
        ...


class CounterStore(Protocol):
    """Windows, uid records and breakers. Each call is indivisible; StoreUnavailableError where there is no answer."""

    async def acquire(self, request: Acquire) -> Receipt:
        """Judge and charge one Pod in one step, all or nothing. A repeated uid is answered as before, uncharged.

        (A breaker that is known to be open refuses without asking: then a repeated uid is refused too.)
        """
        ...

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        """Give back what `uid` was charged, once, while its bucket lives; True if anything was given back."""
        ...

    async def book(self, plan: CounterPlan, bookings: Sequence[Booking]) -> int:
        """Charge each uid that is not known yet, past every limit, at its own time; return how many were not known."""
        ...

    async def outcome(self, plan: CounterPlan, outcome: "Outcome") -> Sequence[Transition]:
        """Tell the breaker how one of the service's requests or Pods fared."""
        ...

    async def look(self, plan: CounterPlan, namespace: str = "") -> Look:
        """Return how a service stands; writes nothing. Where namespaces count apart, `namespace` even if it is idle."""
        ...

    async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
        """Let interval boundaries pass: what an idle service's breaker owes to the time alone."""
        ...

    def known_breaker(self, plan: CounterPlan) -> BreakerView | None:
        """Return the breaker as it is known here without asking anybody; None where it is not known."""
        ...


class Outcome(Struct, frozen=True):
    """How one request or Pod fared. `generation` None means the current one."""

    ok: bool
    latency_us: int
    uid: str | None = None
    generation: int | None = None


class Caller(Struct, frozen=True):
    """Who is calling, after certificate and token agreed on one configured identity."""

    role: str
    client_id: str
    issuer: str
    subject: str
    certificate: str


class TokenKey(Struct, frozen=True):
    """A public key of the key set, bound to one algorithm. `key` is what PyJWT verifies with."""

    kid: str
    algorithm: str
    key: object


class TokenKeys(Protocol):
    """The keys that tokens may be signed with."""

    def find(self, kid: str) -> TokenKey | None: ...

    @property
    def generation(self) -> int:
        """Changes whenever the set does, so that caches can tell."""
        ...


class Review(Struct, frozen=True):
    """One finished review for the observers: the decision, who asked, and how long each stage took."""

    decision: Decision
    caller: Caller | None
    started_ns: int
    """Wall clock, nanoseconds since the Unix epoch."""
    duration_ns: int
    stages: tuple[tuple[str, int], ...] = ()
    """Stage name and its end, in nanoseconds after the start, in order."""
    traceparent: str | None = None
    request: Request | None = None
    """What was asked, by reference: it may hold secrets of a tenant."""


class Observer(Protocol):
    """Told of what happened, after it happened: metrics, logs and traces are siblings. Must not raise or block."""

    def reviewed(self, review: Review) -> None: ...

    def transitioned(self, transition: Transition) -> None: ...

    def refused(self, reason: str, detail: str) -> None:
        """Say that a call was turned away before any decision; `reason` labels a metric, `detail` is for our log."""
        ...

    def policy_loaded(self, loaded: LoadedPolicy) -> None: ...

    def policy_failed(self, errors: Sequence[str]) -> None: ...

    def policy_judged(self, user: str, errors: Sequence[str]) -> None:
        """Say that `user` wants to store a policy; it was refused for `errors`, admitted where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class WatchReports:
    """Whom a watch tells how it fares. A trouble is told once, with the same words when it is over."""

    on_contact: Callable[[], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]


class NamespaceLabels(Protocol):
    """Labels of a Namespace."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return its labels, None where it is not known here."""
        ...

    async def look(self, namespace: str) -> Mapping[str, str] | None:
        """Ask whoever keeps Namespaces, once; None where it is unknown there too, or there is no answer in time."""
        ...
