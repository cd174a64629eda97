"""Interceptor: one AdmissionReview, from its request body to its response: choose a policy, run the stages, record."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter_ns, time_ns

from msgspec import Struct

from webhook.core.admission import charging, grouping, makers, ownership, queueing, review, slots, stages, workloads
from webhook.core.admission.decision import Decision, Half
from webhook.core.admission.evaluation import NO_POD, Evaluation, conclude
from webhook.core.admission.exemptions import PODGATE_USERS
from webhook.core.admission.review import Request
from webhook.core.json_depth import make_readable
from webhook.core.kubernetes.admission_request import UnreadableReviewError
from webhook.core.kubernetes.pod_size import LARGE_BYTES, has_many_parts, measure
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import NoPolicyError, StoreUnavailableError
from webhook.policy_in_force.policy_choice import PolicyChoice
from webhook.ports import Caller, CounterStore, NamespaceLabels, Observer, PodQueue, PodSlots, PolicySource, Review
from webhook.ports.traces import TimedCalls, TraceSampler, acquire_timed, sample_none, timed_calls
from webhook.support.call_thread import CallThread


class UnknownNamespaceError(Exception):
    """The policy selects by Namespace labels, and the Namespace is not found. A guess could exempt Pods."""


class Answer(Struct, frozen=True, gc=False):
    """The response to the API server, and the decision that it was made from."""

    body: bytes
    decision: Decision


Stage = Callable[[Evaluation], Awaitable[None] | None]
"""A function that may set the evaluation's verdict, which ends the review."""

_OwnerFinder = Callable[[Evaluation, Mapping[str, str]], None]
_NO_LABELS: Mapping[str, str] = {}
_INLINE_BYTES_MAX = 512 << 10
"""Size above which a body is decoded in a thread: others would wait too long for it."""


class _Pipeline:
    """Stages, in order. `names_of`: stage names, keyed by how many stages ran."""

    def __init__(self, conclude: Callable[[Evaluation, str], Decision], *stages: tuple[str, Stage]) -> None:
        self.stages = tuple(stage for _, stage in stages)
        self.conclude = conclude
        names = tuple(name for name, _ in stages)
        self.names_of = {2 + count: ("decode", "policy", *names[:count], "answer") for count in range(len(names) + 1)}


class Interceptor:
    """Reviews requests. The server, `podgate review`, `podgate replay` and the demo all call `review`."""

    def __init__(  # noqa: PLR0913  the ports that it connects
        self,
        policies: PolicySource,
        store: CounterStore,
        namespaces: NamespaceLabels,
        observer: Observer,
        on_uncounted: Callable[[Acquire], None] = lambda _: None,
        sample: TraceSampler = sample_none,
        *,
        queue: PodQueue | None = None,
        pod_slots: PodSlots | None = None,
        is_releaser: Callable[[str], bool] = PODGATE_USERS.__contains__,
        check: Callable[[Evaluation], None] | None = None,
    ) -> None:
        """Create it. `on_uncounted` receives the charge of each Pod admitted although the store gave no answer.

        `queue` is necessary for policies under which Pods wait; `is_releaser` names the users that release them.
        `pod_slots` is necessary for policies that divide Pods over variants.
        `check` replaces that of the core: `check_recorded` where Pods may come from records.
        """
        self._choice = PolicyChoice(policies, namespaces)
        self._find_policy = self._choice.find
        self._store = store
        self._namespaces = namespaces
        self._observer = observer
        self._on_uncounted = on_uncounted
        self._sample = sample
        self._pod_slots = pod_slots
        self._run_in_thread = CallThread("large-pod").run
        """Runs a step for a large Pod beside the event loop, so that other reviews continue; one such Pod at a time."""
        exempt = partial(ownership.exempt, is_releaser)
        # The cheapest denials come first; the stage that charges comes last.
        self._pod_stages = {
            Half.MUTATE: _Pipeline(
                conclude,
                ("exempt", exempt),
                ("own", partial(self._find_owner, ownership.find_owner)),
                *(() if queue is None else (("queue", partial(self._gate, queue)),)),
                ("rewrite", self._rewrite),
            ),
            Half.VALIDATE: _Pipeline(
                conclude,
                ("exempt", exempt),
                ("own", partial(self._find_owner, ownership.find_owner)),
                ("breaker", self._check_breaker),
                ("check", partial(self._run, check or stages.check)),
                *(() if queue is None else (("queue", partial(self._enqueue, queue)),)),
                ("charge", self._charge),
            ),
        }
        # A workload is only checked: its Pods meet the breaker and are charged when they are created.
        self._workload_stages = _Pipeline(
            workloads.conclude,
            ("exempt", workloads.exempt),
            ("own", partial(self._find_owner, workloads.find_owner)),
            ("check", partial(self._run, workloads.check)),
        )
        self._custom_stages = _Pipeline(
            makers.conclude_custom, ("exempt", makers.exempt), ("templates", self._review_templates)
        )

    async def review(
        self, half: Half, body: bytes, caller: Caller | None = None, traceparent: str | None = None
    ) -> Answer:
        """Review one AdmissionReview, and report it to the observer.

        BadReviewError: the body is not a valid review. NoPolicyError, UnknownNamespaceError: no decision is possible.
        """
        wall_ns, started_ns = time_ns(), perf_counter_ns()
        is_large = False
        try:
            if len(body) > LARGE_BYTES and (len(body) > _INLINE_BYTES_MAX or has_many_parts(body)):
                request, is_large = await self._decode_large(body)
            else:
                request = review.decode(body)
        except UnreadableReviewError:  # whoever creates a Pod may write such managedFields
            body = await self._run_in_thread(make_readable, body)
            request, is_large = await self._decode_large(body)
        decoded_ns = perf_counter_ns() - started_ns
        trace = self._sample(half, request, traceparent, wall_ns)
        timed = None if trace is None else TimedCalls(started_ns)
        if timed is not timed_calls.get():  # rare: it mostly stays None
            timed_calls.set(timed)

        policy, hash_known = self._find_policy(half, request) or await self._choice.refresh(request)
        if policy is None:
            raise NoPolicyError("no good policy has been loaded yet")
        evaluation = Evaluation(half, request, policy, request.pod or NO_POD, hash_known, is_large, body)
        ends_ns = [decoded_ns, perf_counter_ns() - started_ns]

        if request.workload is None:
            pipeline = self._pod_stages[half]
        else:
            pipeline = self._workload_stages if request.workload.maker is None else self._custom_stages
        for stage in pipeline.stages:
            pending = stage(evaluation)
            if pending is not None:
                await pending
            ends_ns.append(perf_counter_ns() - started_ns)
            if evaluation.verdict is not None:
                break

        decision = pipeline.conclude(evaluation, caller.client_id if caller else "")
        answer = Answer(review.encode(decision), decision)
        took_ns = perf_counter_ns() - started_ns
        names, calls = pipeline.names_of[len(ends_ns)], () if timed is None else timed.calls
        done = Review(
            decision, caller, wall_ns, took_ns, names, (*ends_ns, took_ns), trace=trace, calls=calls, request=request
        )
        self._observer.on_reviewed(done)
        return answer

    async def _decode_large(self, body: bytes) -> tuple[Request, bool]:
        """Decode a large body, and return whether its Pod or object is large, too. Other reviews may run meanwhile."""
        if len(body) > _INLINE_BYTES_MAX:
            size = await self._run_in_thread(measure, body)
            request = await self._run_in_thread(review.decode, body, size.excess)
        else:
            size = measure(body)
            await asyncio.sleep(0)
            request = review.decode(body, size.excess)
        return request, size.is_large or request.workload is not None

    async def _review_templates(self, evaluation: Evaluation) -> None:
        """Review each Pod template of an object of a custom kind, by the stages of workloads."""
        is_large, read = evaluation.is_large, makers.read_templates
        found = await self._run_in_thread(read, evaluation) if is_large else read(evaluation)
        templates = makers.begin_reviews(evaluation, found, self._find_policy)
        for _, part in templates:
            for stage in self._workload_stages.stages:
                pending = stage(part)
                if pending is not None:
                    await pending
                if part.verdict is not None:
                    break
        makers.join(evaluation, templates)

    # The stages, in order. Those without a method here are functions of the core.

    def _find_owner(self, find_owner: _OwnerFinder, evaluation: Evaluation) -> Awaitable[None] | None:
        """Find the service that the Pod belongs to, with the labels of its namespace if some service reads them."""
        namespace, labels = evaluation.request.namespace, _NO_LABELS
        if evaluation.compiled.matcher.by_namespace[namespace].read_labels:
            known = self._namespaces.find_labels(namespace)
            if known is not None:
                labels = known
            elif ownership.needs_namespace_labels(evaluation):
                return self._find_owner_after_lookup(find_owner, evaluation)
        find_owner(evaluation, labels)
        return None

    async def _find_owner_after_lookup(self, find_owner: _OwnerFinder, evaluation: Evaluation) -> None:
        """Look up a Namespace that is too new to be in the cache: "not cached" must never mean "does not match"."""
        namespace = evaluation.request.namespace
        labels = await self._namespaces.look_up_labels(namespace)
        if labels is None:
            raise UnknownNamespaceError(f"the labels of Namespace {namespace!r} are not known")
        find_owner(evaluation, labels)

    def _gate(self, queue: PodQueue, evaluation: Evaluation) -> Awaitable[None] | None:
        """Gate a Pod that would be denied, if the Pods of its service wait instead; on overload, gate it unjudged."""
        if not queueing.may_be_gated(evaluation):
            if evaluation.pod.spec.scheduling_gates:  # of an earlier call, or of the creator
                grouping.join_group(evaluation)
            return None
        if grouping.join_group(evaluation):
            return None
        overload = queue.find_overload(evaluation.plan)
        if not overload:
            return self._gate_if_full(queue, evaluation)
        queueing.gate_on_overload(evaluation, overload)
        return None

    async def _gate_if_full(self, queue: PodQueue, evaluation: Evaluation) -> None:
        try:
            asked = charging.foresee_acquire(evaluation)
            reason = await queue.find_reason_to_wait(asked, is_dry_run=evaluation.request.dry_run)
        except StoreUnavailableError as error:
            return queueing.gate_without_store(evaluation, str(error))
        return queueing.add_gate(evaluation, reason) if reason else None

    def _rewrite(self, evaluation: Evaluation) -> Awaitable[None] | None:
        plan = evaluation.plan
        if plan.rewrites_alike:
            return self._run(stages.rewrite, evaluation)
        return self._divide(plan, evaluation) if plan.divides else self._rewrite_by_breaker(plan, evaluation)

    def _rewrite_by_breaker(self, plan: CounterPlan, evaluation: Evaluation) -> Awaitable[None] | None:
        degrades = plan.breaker is not None and plan.breaker.degrades
        return self._run(stages.rewrite, evaluation, self._store.find_known_breaker(plan) if degrades else None)

    async def _divide(self, plan: CounterPlan, evaluation: Evaluation) -> None:
        """Give a new Pod its slot, and rewrite it for the variant that comes with it."""
        owner = slots.find_dividable(evaluation)
        if owner is not None and self._pod_slots is not None:
            shares, request = evaluation.compiled.shares[plan.service], evaluation.request
            taken = await self._pod_slots.take(shares, plan, owner, request.uid, is_dry_run=request.dry_run)
            slots.take_slot(evaluation, taken.slot, taken.reason)
        pending = self._rewrite_by_breaker(plan, evaluation)
        if pending is not None:
            await pending

    def _check_breaker(self, evaluation: Evaluation) -> None:
        view = self._store.find_known_breaker(evaluation.plan)
        if view is not None:
            stages.deny_if_open(evaluation, view, self._store.now_us())

    def _enqueue(self, queue: PodQueue, evaluation: Evaluation) -> Awaitable[None] | None:
        """Register a gated Pod: it is charged when it is released."""
        return self._register(queue, evaluation) if queueing.is_waiting(evaluation) else None

    async def _register(self, queue: PodQueue, evaluation: Evaluation) -> None:
        asked = charging.build_acquire(evaluation)
        is_accepted = asked.peek or await queue.enqueue(asked)
        queueing.record_waiting(evaluation, asked, is_accepted=is_accepted)

    async def _charge(self, evaluation: Evaluation) -> None:
        if evaluation.is_large:
            asked = await self._run_in_thread(charging.build_acquire, evaluation)
        else:
            asked = charging.build_acquire(evaluation)
        evaluation.asked = asked
        timed = timed_calls.get()
        acquire = self._store.acquire if timed is None else partial(acquire_timed, self._store, timed)
        try:
            receipt = await acquire(asked)
        except StoreUnavailableError as error:
            charging.admit_or_deny_uncounted(evaluation, error.failure.summary, str(error))
            if evaluation.uncounted:
                self._on_uncounted(asked)
            return
        charging.record_receipt(evaluation, receipt)
        for transition in receipt.transitions:
            self._observer.on_transition(transition)

    def _run(self, work: Callable[..., None], evaluation: Evaluation, *arguments: object) -> Awaitable[None] | None:
        """Run a step of the core; return what to wait for if the Pod is large."""
        if evaluation.is_large:
            return self._run_in_thread(work, evaluation, *arguments)
        work(evaluation, *arguments)
        return None
