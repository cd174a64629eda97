"""A decision recomputed from its record: the same explanation as that of `review --explain`."""

import asyncio

import msgspec
from hypothesis import assume, given
from msgspec.structs import replace

from tests.core.recording import Recorder
from tests.core.reviewing import NOW_US, Gate, policy_of
from tests.core.strategies import HASH, Json, Pair, examples, pairs
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.commands.manifests import Subject
from webhook.commands.pages.pod_report_page import format_report
from webhook.commands.review_object import Asker, Evaluator, ReviewedObject, judge
from webhook.core.admission.decision import Decision
from webhook.core.admission.reinvocation import remove_outdated
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Surroundings, diagnose
from webhook.core.diagnosis.recomputation import list_rule_notes, recompute
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.overrides import Override, PartialModes, apply_overrides
from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.policy_fields import Mode
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.rule_notes import Note
from webhook.interceptor import Interceptor


def review_pod(pod: Json, service: Service) -> tuple[ReviewedObject, list[DecisionRecord], CompiledPolicy]:
    """Review a Pod as `podgate review --explain` does; return the records of its halves, and the policy."""
    observers, clock = Recorder(), VirtualClock(NOW_US)
    policies = FixedPolicy(LoadedPolicy(Policy("podgate.io/v1alpha1", "Policy", (service,)), HASH), clock)
    interceptor = Interceptor(policies, MemoryStore(clock), FixedNamespaces({"shop": {}}), observers)
    evaluator = Evaluator(interceptor, lambda _: policies.get_current())
    subject = Subject("pod.yaml", "", "Pod", "p", "shop", document=pod, written=pod, pod=pod)
    found = asyncio.run(judge(evaluator, subject, Asker(), with_notes=True))
    validate, mutate = observers.records[-2:]
    return found, [mutate, validate], policies.get_current()


def reduce_explanation(mutated: Decision, validated: Decision, notes: tuple[Note, ...]) -> list[object]:
    """Return an explanation without what a record does not keep: the order of a JSON object's fields, and empty maps.

    Several labels are one operation if the Pod has none, and one each if it has an empty map of them.
    """
    listed = ", ".join(operation.path for operation in mutated.patch)
    steps = [
        (step.stage, "the patch" if listed and step.found == listed else step.found)
        for step in (*mutated.steps, *validated.steps)
    ]
    sets = [
        note._replace(words="; ".join(sorted(note.words.split("; "))), marks=tuple(sorted(note.marks)))
        for note in notes
    ]
    return [steps, sets, mutated.service, validated.status, validated.findings]


def sort_terms(document: Json) -> Json:
    """Return a Pod as an API server sends it: terms in the order of their type, without unknown fields."""
    spec = msgspec.json.decode(msgspec.json.encode(document), type=Pod).spec
    terms = {
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "topologySpreadConstraints": spec.topology_spread_constraints,
    }
    known = {name: msgspec.to_builtins(value) for name, value in terms.items() if value is not None}
    sent: Json = msgspec.json.decode(msgspec.json.encode({**document, "spec": {**document["spec"], **known}}))
    return sent


@examples(300)  # `make soak` compares 1,000
@given(pairs)
def test_recomputed_explanation_is_that_of_review(pair: Pair) -> None:
    pod = sort_terms(pair.pod)
    # A record does not keep the managedFields by which an earlier call's values are known.
    assume(not remove_outdated(Pod.from_document(pod), pair.service, pair.service))
    found, (mutate, validate), policy = review_pod(pod, pair.service)
    again = recompute(mutate, policy), recompute(validate, policy)
    assert reduce_explanation(*again, list_rule_notes(mutate, policy)) == reduce_explanation(
        found.admission.mutated, found.admission.validated, found.notes
    )


UNDER_OVERRIDES = """
- name: web
  match: {namespaces: [shop]}
  placement: {nodeSelector: {disk: ssd}}
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
"""
AUDITED = Override(
    "web",
    "2027-02-01T00:00:00Z",
    "INC-1",
    quota_factor=Quantity.parse("3"),
    modes=PartialModes(placement=Mode.AUDIT),
    by="alice",
)


async def test_decision_under_an_override_is_recomputed_by_the_policy_without_it() -> None:
    base, recorder = policy_of(UNDER_OVERRIDES), Recorder()
    gate = Gate(apply_overrides(base, {"web": (AUDITED,)}), observers=[recorder])
    decided = await gate.validate(object=gate.build_owned_pod("u1", nodeSelector={"disk": "hdd"}))
    [record] = recorder.records
    assert decided.allowed
    assert record.override_entries == (AUDITED,)
    assert [limit.hard for limit in record.limits] == [3]
    again = recompute(record, CompiledPolicy(base))
    assert (again.verdict, again.findings, again.steps) == (decided.verdict, decided.findings, decided.steps)
    found = diagnose(PodFacts("shop", "web-u1", "u1", records=(record,)), Surroundings(NOW_US))
    assert found is not None
    assert found.admission is not None
    assert found.admission.overrides == (str(AUDITED),)
    assert f"  override  {AUDITED}" in format_report(found)


async def test_decision_without_a_lasting_override_of_its_service_records_none() -> None:
    recorder = Recorder()
    entries = {
        "other": (replace(AUDITED, service="other"),),
        "web": (Override("web", AUDITED.until, "INC-2", reset_at="2027-01-01T00:00:00Z"),),
    }
    gate = Gate(apply_overrides(policy_of(UNDER_OVERRIDES), entries), observers=[recorder])
    await gate.validate(object=gate.build_owned_pod("u1"))
    assert [record.override_entries for record in recorder.records] == [()]


RULED = """
- name: web
  match: {namespaces: [shop]}
  rules:
  - {name: few, require: 'size(pod.containers) < 2', mode: Warn}
  - {name: pinned, require: 'pod.containers.all(c, !c.image.endsWith(":latest"))', mode: Enforce}
"""


async def test_finding_of_a_rule_that_reads_more_than_the_record_is_the_recorded_one() -> None:
    base, recorder = policy_of(RULED), Recorder()
    gate = Gate(base, observers=[recorder])
    containers = [{"name": name, "image": "nginx:latest"} for name in ("a", "b")]
    decided = await gate.validate(object=gate.build_owned_pod("u1", containers=containers))
    [record] = recorder.records
    again = recompute(record, CompiledPolicy(base))
    assert not again.allowed
    assert (again.verdict, again.findings, again.status) == (decided.verdict, decided.findings, decided.status)
    assert "rule pinned: not judged: records do not keep containers.image" in [step.found for step in again.steps]
