"""Routes of the admission server and of the scheduler extender."""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns

from webhook.authentication.identities import Role
from webhook.core.admission.decision import Half
from webhook.core.scheduling.extender_api import BadExtenderRequestError, CallResult
from webhook.extender.extender import Extender
from webhook.interceptor import Interceptor
from webhook.outcomes.endpoint import OutcomeEndpoint
from webhook.policy_in_force.policy_webhook import PolicyWebhook
from webhook.ports import Caller
from webhook.server.call_endpoint import EncodedAnswer, Route


def build_admission_routes(
    interceptor: Interceptor, policies: PolicyWebhook, outcomes: OutcomeEndpoint
) -> Mapping[str, Route]:
    """Return `/mutate`, `/validate`, `/validate-policy` for the API server, `/v1/outcomes` for reporters."""

    async def review_policy(body: bytes, _caller: Caller, _traceparent: str | None) -> EncodedAnswer:
        return EncodedAnswer(await policies.review(body))

    async def receive(body: bytes, caller: Caller, _traceparent: str | None) -> EncodedAnswer:
        return EncodedAnswer(await outcomes.receive(body, caller))

    return {
        "/mutate": Route(Role.APISERVER, partial(interceptor.review, Half.MUTATE)),
        "/validate": Route(Role.APISERVER, partial(interceptor.review, Half.VALIDATE)),
        "/validate-policy": Route(Role.APISERVER, review_policy),
        "/v1/outcomes": Route(Role.REPORTER, receive),
    }


def build_extender_routes(extender: Extender, on_ended: Callable[[str, CallResult, int], None]) -> Mapping[str, Route]:
    """Return `/filter`, `/prioritize`, `/preempt` for kube-scheduler.

    `on_ended` receives the verb of each call, its result, and how long it took in nanoseconds.
    """

    def build_route(verb: str, answer: Callable[[bytes], bytes]) -> Route:
        async def call(body: bytes, _caller: Caller, _traceparent: str | None) -> EncodedAnswer:
            started_ns, result = perf_counter_ns(), CallResult.FAILED
            try:
                answered = answer(body)
                result = CallResult.ANSWERED if extender.is_ready else CallResult.NOT_READY
            except BadExtenderRequestError:
                result = CallResult.BAD_REQUEST
                raise
            finally:
                on_ended(verb, result, perf_counter_ns() - started_ns)
            return EncodedAnswer(answered)

        return Route(Role.SCHEDULER, call)

    return {
        "/filter": build_route("filter", extender.filter),
        "/prioritize": build_route("prioritize", extender.prioritize),
        "/preempt": build_route("preempt", extender.preempt),
    }
