"""Calls for new Pods that are left out: the decision core finds nothing to do for such a Pod."""

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.strategies import HASH, OUR_LABEL, Json, examples
from tests.core.webhook_configurations.pod_calls import (
    CLIENT,
    STANZAS,
    Namespace,
    fields,
    is_called,
    labels,
    load_services,
    matches,
    mutate_pod,
    namespaces,
    pods,
    review_pod,
    services,
)
from webhook.core.admission.decision import Half, Verdict
from webhook.core.policy.model import LoadedPolicy, Modes
from webhook.core.policy_fields import Mode
from webhook.core.webhook_configurations import render_configurations

policies = st.builds(
    lambda services, unmatched: load_services(*services, unmatched=unmatched),
    st.lists(services, min_size=1, max_size=5),
    st.sampled_from(["Admit", "Warn", "Deny"]),
)


@examples(400)
@given(policies, pods, namespaces)
def test_nothing_is_written_into_a_pod_whose_mutating_call_is_left_out(
    policy: LoadedPolicy, pod: Json, namespace: Namespace
) -> None:
    assume(is_called(render_configurations(policy.policy, CLIENT, all_calls=True)[0], pod, namespace))
    called = is_called(render_configurations(policy.policy, CLIENT)[0], pod, namespace)
    decision, _ = review_pod(policy, Half.MUTATE, pod, namespace)
    if not called:
        assert (decision.patch, decision.warnings, decision.findings) == ((), (), ())
        assert not decision.deviation.would_degrade
    matches = [service.match for service in policy.policy.services]
    reads_names_only = not any(match.namespace_selector is not None or match.owner_kinds for match in matches)
    if reads_names_only and OUR_LABEL not in pod["metadata"]["labels"]:
        assert called is bool(decision.patch), "a call is left out wherever nothing is written"


@examples(400)
@given(
    policies, pods, namespaces, labels, fields, st.sampled_from(["rewritten", "changed afterwards", "not rewritten"])
)
def test_nothing_comes_of_a_pod_whose_validating_call_is_left_out(
    policy: LoadedPolicy, pod: Json, namespace: Namespace, labels: Json, fields: Json, history: str
) -> None:
    if history != "not rewritten":
        pod = mutate_pod(policy, pod, namespace)
    if history == "changed afterwards":
        metadata = {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), **labels}}
        pod = {**pod, "metadata": metadata, "spec": {**pod["spec"], **fields}}
    assume(is_called(render_configurations(policy.policy, CLIENT)[1], pod, namespace))
    if is_called(render_configurations(policy.policy, CLIENT, HASH)[1], pod, namespace):
        return
    decision, store = review_pod(policy, Half.VALIDATE, pod, namespace)
    assert decision.verdict is Verdict.ADMIT
    assert (decision.findings, decision.warnings, decision.would_write) == ((), (), ())
    assert all(request.plan.counts_nothing for request in store.requests)


free_services = st.builds(lambda match, stanzas: {"match": match, **stanzas}, matches, st.sampled_from(STANZAS[:6]))


@examples(400)
@given(
    st.lists(free_services | services, min_size=1, max_size=3).map(lambda some: load_services(*some)),
    pods,
    namespaces,
    st.builds(Modes, *[st.sampled_from(Mode)] * 4),
)
def test_no_override_of_modes_refuses_a_pod_whose_validating_call_is_left_out(
    policy: LoadedPolicy, pod: Json, namespace: Namespace, override: Modes
) -> None:
    """Overrides do not change the policy's hash, and so the calls are left out all the same."""
    pod = mutate_pod(policy, pod, namespace)
    assume(is_called(render_configurations(policy.policy, CLIENT)[1], pod, namespace))
    if is_called(render_configurations(policy.policy, CLIENT, HASH)[1], pod, namespace):
        return
    overridden = tuple(replace(service, modes=override) for service in policy.policy.services)
    decision, _ = review_pod(
        LoadedPolicy(replace(policy.policy, services=overridden), HASH), Half.VALIDATE, pod, namespace
    )
    assert (decision.verdict, decision.findings) == (Verdict.ADMIT, ())


@examples(400)
@given(policies, policies, pods, namespaces)
def test_pod_is_called_for_at_least_once_under_a_newer_policy(
    rendered: LoadedPolicy, newer: LoadedPolicy, pod: Json, namespace: Namespace
) -> None:
    """Effects of a newer policy are reported: by its rewrite and check, or as a missing rewrite."""
    pod["metadata"]["annotations"] = {}
    newer = replace(newer, hash="f" * 16)
    every_call = render_configurations(rendered.policy, CLIENT, all_calls=True)
    assume(all(is_called(configuration, pod, namespace) for configuration in every_call[:2]))
    mutating, validating, _ = render_configurations(rendered.policy, CLIENT, HASH)
    if is_called(mutating, pod, namespace):
        pod = mutate_pod(newer, pod, namespace)
    assert is_called(validating, pod, namespace)
