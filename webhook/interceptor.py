"""One AdmissionReview, top to bottom: decode, own, breaker, rewrite or check, charge, answer, record."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns, time_ns

from msgspec import Struct

from webhook.core.admission import charging, ownership, review, stages, workloads
from webhook.core.admission.decision import Decision, Half
from webhook.core.admission.evaluation import Evaluation, conclude
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod_size import LARGE_BYTES, excess
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import Acquire
from webhook.errors import NoPolicyError, StoreUnavailableError
from webhook.policy.active_overrides import NoOverrides
from webhook.policy.active_policy import ActivePolicy
from webhook.ports import Caller, CounterStore, NamespaceLabels, Observer, PolicySource, Review
from webhook.store.errors import UncountedError


class UnknownNamespaceError(Exception):
    """The policy asks for the labels of a Namespace that nobody knows: to guess would be to let Pods escape."""


class Answer(Struct, frozen=True):
    """What goes back to the API server, and the record that it was made from."""

    body: bytes
    decision: Decision


Stage = tuple[str, Callable[[Evaluation], Awaitable[None] | None]]


class Interceptor:
    """The one way in: the server, `review`, `replay` and the demo all call `review`."""

    def __init__(
        self,
        policies: PolicySource,
        store: CounterStore,
        namespaces: NamespaceLabels,
        observer: Observer,
        active: ActivePolicy | None = None,
    ) -> None:
        """Make it; `active` compiles policies where they are swapped. Without it they are compiled as they come."""
        self._policies = policies
        self._store = store
        self._namespaces = namespaces
        self._observer = observer
        self._active = active or ActivePolicy(NoOverrides())
        self._large_pods = ThreadPoolExecutor(1, "large-pod")
        # Cheapest refusal first; what spends comes last.
        self._stages: dict[Half, tuple[Stage, ...]] = {
            Half.MUTATE: (("exempt", ownership.exempt), ("own", self._own), ("rewrite", self._rewrite)),
            Half.VALIDATE: (
                ("exempt", ownership.exempt),
                ("own", self._own),
                ("breaker", self._breaker),
                ("check", lambda evaluation: self._work(evaluation, stages.check, evaluation)),
                ("charge", self._charge),
            ),
        }
        # Its Pods are charged, and meet the breaker, when there are any.
        self._of_workloads: tuple[Stage, ...] = (
            ("exempt", workloads.exempt),
            ("own", self._own),
            ("check", lambda evaluation: self._work(evaluation, workloads.check, evaluation)),
        )

    async def review(
        self, half: Half, body: bytes, caller: Caller | None = None, traceparent: str | None = None
    ) -> Answer:
        """Judge one AdmissionReview.

        BadReviewError: the body's fault. NoPolicyError, UnknownNamespaceError: there is nothing to judge by.
        """
        wall_ns, started_ns = time_ns(), perf_counter_ns()
        is_large = len(body) > LARGE_BYTES
        request = await _of_large(body) if is_large else review.decode(body)
        laps = [("decode", perf_counter_ns() - started_ns)]
        evaluation = await self._evaluation(half, request)
        evaluation.is_large = is_large
        laps.append(("policy", perf_counter_ns() - started_ns))
        for name, stage in self._stages[half] if request.workload is None else self._of_workloads:
            pending = stage(evaluation)
            if pending is not None:
                await pending
            laps.append((name, perf_counter_ns() - started_ns))
            if evaluation.verdict is not None:
                break
        finish = conclude if request.workload is None else workloads.conclude
        decision = finish(evaluation, caller.client_id if caller else "")
        answer = Answer(review.encode(decision), decision)
        took_ns = perf_counter_ns() - started_ns
        laps.append(("answer", took_ns))
        self._observer.reviewed(Review(decision, caller, wall_ns, took_ns, tuple(laps), traceparent, request))
        return answer

    def compiled(self, loaded: LoadedPolicy) -> CompiledPolicy:
        """Return a policy as it is under the overrides in force."""
        return self._active.compiled(loaded)

    async def _evaluation(self, half: Half, request: Request) -> Evaluation:
        """Judge a new Pod by the policy that it carries, if that was in force a moment ago: one Pod sees one policy."""
        current = self._policies.current()
        carried = None
        if request.pod and request.operation == "CREATE" and request.workload is None:
            carried = request.pod.annotations.get(HASH_ANNOTATION)
        if carried is None or (current is not None and carried == current.hash):
            chosen, hash_known = current, True
        else:
            chosen = self._policies.by_hash(carried)
            if chosen is None and half is Half.VALIDATE:
                # Another replica may have rewritten the Pod by a newer document than ours: read once more.
                await self._policies.refresh()
                chosen = self._policies.by_hash(carried)
            hash_known = chosen is not None
            chosen = chosen or self._policies.current()
        if chosen is None:
            raise NoPolicyError("no good policy has been loaded yet")
        return Evaluation(half, request, self.compiled(chosen), hash_known)

    def _own(self, evaluation: Evaluation) -> Awaitable[None] | None:
        namespace = evaluation.request.namespace
        labels = self._namespaces.labels(namespace)
        if labels is None and ownership.needs_namespace_labels(evaluation):
            return self._own_by_a_look(evaluation)
        self._own_by(evaluation, labels or {})
        return None

    async def _own_by_a_look(self, evaluation: Evaluation) -> None:
        """Ask for a Namespace that is not known here, because it is new: "not known" must never mean "no match"."""
        namespace = evaluation.request.namespace
        labels = await self._namespaces.look(namespace)
        if labels is None:
            raise UnknownNamespaceError(f"the labels of Namespace {namespace!r} are not known")
        self._own_by(evaluation, labels)

    @staticmethod
    def _own_by(evaluation: Evaluation, namespace_labels: Mapping[str, str]) -> None:
        find_owner = ownership.find_owner if evaluation.request.workload is None else workloads.find_owner
        find_owner(evaluation, namespace_labels)

    def _rewrite(self, evaluation: Evaluation) -> Awaitable[None] | None:
        breaker = evaluation.plan.breaker
        degrades = breaker is not None and breaker.degrades
        return self._work(
            evaluation, stages.rewrite, evaluation, self._store.known_breaker(evaluation.plan) if degrades else None
        )

    def _work(self, evaluation: Evaluation, work: Callable[..., None], *arguments: object) -> Awaitable[None] | None:
        """Do what takes long for a large Pod beside the loop, where other reviews go on; one such Pod at a time."""
        if evaluation.is_large:
            return asyncio.get_running_loop().run_in_executor(self._large_pods, work, *arguments)
        work(*arguments)
        return None

    def _breaker(self, evaluation: Evaluation) -> None:
        view = self._store.known_breaker(evaluation.plan)
        if view is not None:
            stages.deny_if_open(evaluation, view, self._store.now_us())

    async def _asked(self, evaluation: Evaluation) -> Acquire:
        return await asyncio.get_running_loop().run_in_executor(self._large_pods, charging.acquire, evaluation)

    async def _charge(self, evaluation: Evaluation) -> None:
        asked = charging.acquire(evaluation) if not evaluation.is_large else await self._asked(evaluation)
        try:
            receipt = await self._store.acquire(asked)
        except StoreUnavailableError as error:
            charging.admit_or_deny_uncounted(evaluation, str(error))
            if evaluation.uncounted and isinstance(error, UncountedError):
                self._store.book_later(asked)
            return
        charging.record_receipt(evaluation, receipt)
        for transition in receipt.transitions:
            self._observer.transitioned(transition)


async def _of_large(body: bytes) -> Request:
    """Read a large body: counted first, and others have a turn before it is decoded."""
    found = excess(body)
    await asyncio.sleep(0)
    return review.decode(body, found)
