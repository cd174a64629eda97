"""Labels and annotations for other schedulers: their Namespace, UPDATE, and their presentation."""

from typing import Any

import pytest

from tests.core.reviewing import Gate, policy_of
from tests.core.rewriting import decode_pod
from tests.core.strategies import Json, service_of
from tests.core.webhook_configurations.cel import is_true
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission.decision import Verdict
from webhook.core.admission.validation import check_update
from webhook.core.findings import Code
from webhook.core.rule_notes import Act, explain
from webhook.core.webhook_configurations import ClientConfig, render_configurations
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers

QUEUED = """
- name: web
  match: {namespaces: [shop]}
  placement:
    labels: {queue: {fromNamespace: team}, app-id: {fromPod: app}}
    annotations: {note: prod}
"""
PLACEMENT: Json = {"labels": {"queue": "prod", "app-id": {"fromPod": "app"}}, "annotations": {"note": "n"}}
STORED: Json = {"labels": {"app": "web", "queue": "prod", "app-id": "web"}, "annotations": {"note": "n"}}


GATES = [{"name": "example.com/wait"}]


def pod(metadata: Json, **spec: Any) -> Json:
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": [{"name": "c"}], **spec}}


async def admit_pod(gate: Gate, metadata: Json) -> Admission:
    return await admit(gate.interceptor, Ask(pod(metadata), "shop", "u", "alice"))


async def test_pods_of_two_namespaces_get_their_own_values_from_one_policy() -> None:
    policy = policy_of(QUEUED)
    gate = Gate(policy)
    policies = FixedPolicy(policy, gate.clock)
    for team in ("a", "b", "a"):
        namespaces = FixedNamespaces({"shop": {"team": team}})
        interceptor = Interceptor(policies, gate.store, namespaces, Observers())
        admission = await admit(interceptor, Ask(pod({"labels": {"app": "x"}}), "shop", team, "alice"))
        assert admission.validated.verdict is Verdict.ADMIT
        assert (
            admission.pod["metadata"]["labels"] | {"queue": team, "app-id": "x"} == admission.pod["metadata"]["labels"]
        )


@pytest.mark.parametrize(
    ("labels", "namespace", "written"),
    [
        ({}, {}, {"queue": "shared", "id": "none"}),
        ({"app": "x"}, {}, {"queue": "shared", "id": "x"}),
        ({}, {"team": "a"}, {"queue": "a", "id": "none"}),
        ({"app": ""}, {"team": ""}, {"queue": "", "id": ""}),
        ({"team": "mine"}, {}, {"queue": "shared", "id": "none"}),
    ],
)
async def test_default_is_set_where_the_source_is_absent(labels: Json, namespace: Json, written: Json) -> None:
    services = QUEUED.replace("fromNamespace: team", "fromNamespace: team, default: shared")
    services = services.replace("app-id: {fromPod: app}", "id: {fromPod: app, default: none}")
    policy = policy_of(services)
    gate = Gate(policy)
    namespaces = FixedNamespaces({"shop": namespace})
    interceptor = Interceptor(FixedPolicy(policy, gate.clock), gate.store, namespaces, Observers())
    admission = await admit(interceptor, Ask(pod({"labels": labels}), "shop", "u", "alice"))
    assert admission.validated.verdict is Verdict.ADMIT
    own = admission.pod["metadata"]["labels"]
    assert {key: own[key] for key in written} == written


async def test_unknown_namespace_is_looked_up_although_its_name_decides_the_owner() -> None:
    gate = Gate(policy_of(QUEUED.replace("[shop]", '["team-*"]')))
    with pytest.raises(UnknownNamespaceError):
        await admit(gate.interceptor, Ask(pod({}), "team-new", "u", "alice"))


async def test_decision_names_the_labels_of_the_namespace_and_the_annotations_that_it_read() -> None:
    decision = (await admit_pod(Gate(policy_of(QUEUED), namespace_labels={"team": "t", "x": "y"}), {})).mutated
    assert (decision.inputs.namespace_values, decision.inputs.annotations_read) == ({"team": "t"}, ("note",))


@pytest.mark.parametrize("gates", [[], GATES])
@pytest.mark.parametrize("rule", ["Deny", "Override", "Keep"])
@pytest.mark.parametrize(
    ("changed", "gated_may"),
    [
        ({"labels": {**STORED["labels"], "queue": "dev"}}, True),
        ({"labels": {"app": "web", "app-id": "web"}}, False),
        ({"labels": {**STORED["labels"], "app": "other", "app-id": "other"}}, True),
        ({"annotations": {"note": "mine"}}, True),
        ({"annotations": {}}, False),
    ],
)
def test_update_of_a_value_of_the_policy_is_refused(
    changed: Json, rule: str, gates: list[Json], *, gated_may: bool
) -> None:
    service = service_of({**PLACEMENT, "onConflict": {"default": rule}})
    before, after = (decode_pod(pod(metadata, schedulingGates=gates)) for metadata in (STORED, {**STORED, **changed}))
    found = check_update(before, after, service)
    is_admitted = gated_may and rule == "Keep" and bool(gates)
    assert [finding.code for finding in found] == ([] if is_admitted else [Code.PLACEMENT_CONFLICT])
    assert all("cannot be changed (was " in finding.message for finding in found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STORED, {**STORED, "labels": {**STORED["labels"], "version": "2"}}),
        (STORED, {**STORED, "labels": {**STORED["labels"], "app": "other"}}),
        ({}, {"labels": {"queue": "prod"}}),
        ({"labels": {"queue": "old"}}, {"labels": {"queue": "prod"}}),
        ({"labels": {"queue": "old"}}, {"labels": {"queue": "old", "x": "y"}}),
    ],
)
def test_other_changes_and_the_values_of_the_policy_are_admitted(before: Json, after: Json) -> None:
    assert check_update(decode_pod(pod(before)), decode_pod(pod(after)), service_of(PLACEMENT)) == ()


def test_explanation_tells_where_a_value_is_from_and_why_one_is_not_set() -> None:
    service = service_of({"labels": {"queue": {"fromNamespace": "team"}, "id": {"fromPod": "app"}}})
    notes = {note.rule: note for note in explain(pod({"labels": {"app": "x"}}), service, "0" * 16)}
    assert (notes["placement.labels[id]"].act, notes["placement.labels[id]"].words) == (Act.WROTE, "from label app")
    absent = notes["placement.labels[queue]"]
    assert (absent.act, absent.words) == (Act.NOTHING, "not set: the Namespace's label team is absent")
    there = {note.rule: note for note in explain(pod({}), service, "0" * 16, {"team": "search"})}
    assert there["placement.labels[queue]"].words == "from the Namespace's label team"


@pytest.mark.parametrize(("allowed", "act"), [(["volcano"], Act.NOTHING), ([], Act.LEFT)])
def test_explanation_tells_whether_all_is_allowed(allowed: list[str], act: Act) -> None:
    given = pod({})
    given["spec"]["schedulerName"] = "volcano"
    notes = explain(given, service_of({"allow": {"schedulerNames": allowed}}), "0" * 16)
    assert [note.act for note in notes if note.rule == "placement.allow"] == [act]


def read_update_condition(*stanzas: str) -> str:
    policy = policy_of(
        "\n".join(
            f"- {{name: s{number}, match: {{namespaces: [space-{number}]}}, placement: {stanza}}}"
            for number, stanza in enumerate(stanzas)
        )
    ).policy
    _, validating, _ = render_configurations(policy, ClientConfig("https://podgate.example:8443", b""))
    (webhook, *_) = validating["webhooks"]
    (condition,) = [
        condition for condition in webhook["matchConditions"] if condition["name"] == "judged-fields-differ"
    ]
    return str(condition["expression"])


def format_names(kind: str, first: int, last: int) -> str:
    return "{" + kind + ": {" + ", ".join(f"n{number}: x" for number in range(first, last)) + "}}"


@pytest.mark.parametrize(
    ("stanzas", "expected"),
    [
        (
            (format_names("annotations", 0, 60), format_names("annotations", 60, 120)),
            "object.metadata.?annotations != ",
        ),
        (("{allow: {tolerations: []}}",), "object.spec.?tolerations != "),
    ],
)
def test_updates_of_what_is_guarded_are_sent(stanzas: tuple[str, ...], expected: str) -> None:
    assert expected in read_update_condition(*stanzas).partition("schedulingGates")[0]


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("count", [1, 21, 100])
def test_updates_of_free_labels_and_annotations_are_not_sent(kind: str, count: int) -> None:
    """They pass while no server runs, however many keys the policy writes."""
    keys = [f"n{number}" for number in range(count)]
    expression = read_update_condition(format_names(kind, 0, count))

    def is_sent(key: str) -> bool:
        old = {"metadata": {kind: dict.fromkeys(keys, "x")}, "spec": {}}
        new = {"metadata": {kind: {**dict.fromkeys(keys, "x"), key: "y"}}, "spec": {}}
        request = {"operation": "UPDATE", "userInfo": {"username": "alice"}}
        return is_true(expression, request=request, object=new, oldObject=old)

    assert not is_sent("free")
    assert all(is_sent(key) for key in keys)
