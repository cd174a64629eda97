"""Calls that the API server leaves out by the rendered conditions, during outages and under newer policies, too."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import lengthen_timeouts
from tests.cluster.recorded_cluster import RecordedCluster
from tests.cluster.recording.webhooks import podgate_answer
from tests.cluster.recording_webhook import Answer, Recorder
from tests.core.webhook_configurations.pod_calls import DISABLED, PREFERENCE, QUOTA, is_called, mutate_pod
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

Json = dict[str, Any]
SPACE = "left-out"
WHERE = (SPACE, dict[str, str]())
LABEL, ANNOTATION = "podgate.io/service", "podgate.io/policy-hash"
MUTATE, VALIDATE = ("mutate", "CREATE"), ("validate", "CREATE")


def service(name: str, **more: Any) -> Json:
    match = {"namespaces": [SPACE], "podSelector": more.pop("selector", {"matchLabels": {"app": name}})}
    return {"name": name, "match": match, **more}


def document(*services: Json) -> str:
    return json.dumps({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services})


POLICY = document(
    service("api", failureMode="Closed", **QUOTA),
    service("web", failureMode="Closed", placement=PREFERENCE),
    service("idle", modes=DISABLED),
)
NEWER = document(
    service("api", failureMode="Closed", **QUOTA),
    service("web", failureMode="Closed", placement={"schedulerName": "ours"}),
    service("idle", failureMode="Closed"),
    service("other"),
)


class Webhook(RecordedCluster):
    """A cluster whose API server calls Podgate's code with a policy that may change."""

    def configure(self, policy: str) -> Json:
        """Apply the configurations of a policy; return the validating and the mutating one."""
        loaded = load(policy.encode(), Purpose.SERVE).policy
        rendered = lengthen_timeouts(render_configurations(loaded.policy, self.client, loaded.hash))
        self.plane.apply(*rendered)
        return {"mutate": rendered[0], "validate": rendered[1]}

    def create_app(self, app: str, **more: Any) -> tuple[int, str]:
        return self.create(SPACE, metadata={"labels": {"app": app}}, **more)

    @contextmanager
    def stop(self) -> Iterator[None]:
        self.stop_podgate()
        try:
            yield
        finally:
            self.start_podgate()


class Policies:
    """Answers by the policy in force."""

    def __init__(self) -> None:
        self.in_force = POLICY

    async def answer(self, path: str, body: bytes) -> bytes:
        return await _answer_of(self.in_force)(path, body)


@cache
def _answer_of(policy: str) -> Answer:
    """Read each policy once: one of 1,200 services takes longer than a call may."""
    return podgate_answer(policy.encode())


@pytest.fixture(scope="module")
def policies() -> Policies:
    return Policies()


@pytest.fixture(scope="module")
def webhook(api_alone: ControlPlane, identities: Identities, policies: Policies) -> Iterator[Webhook]:
    load_balancer = api_alone.load_balancers["good"]
    client = ClientConfig(ServiceReference(port=load_balancer.port), (identities.files.folder / "ca.crt").read_bytes())
    api_alone.create_namespace(SPACE)
    with Recorder(identities.files.pki.paths, policies.answer) as recorder:
        webhook = Webhook(api_alone, recorder, load_balancer, client)
        webhook.start_podgate()
        webhook.configure(POLICY)

        def is_in_force() -> bool:
            webhook.create_app("api")
            return webhook.calls == [MUTATE, VALIDATE]

        api_alone.wait(is_in_force, "the webhooks to be in force", "kube-apiserver")
        yield webhook
        webhook.stop_podgate()
        group = "/apis/admissionregistration.k8s.io/v1"
        api_alone.delete(*(f"{group}/{half}webhookconfigurations" for half in ("mutating", "validating")))


def forge_metadata(app: str, policy: str = POLICY) -> Json:
    """Return metadata that claims that this policy has rewritten a Pod of service `web`."""
    policy_hash = load(policy.encode(), Purpose.SERVE).policy.hash
    return {"labels": {"app": app, LABEL: "web"}, "annotations": {ANNOTATION: policy_hash}}


@pytest.mark.parametrize(
    ("app", "calls"),
    [
        ("api", [MUTATE, VALIDATE]),
        ("web", [MUTATE]),
        ("idle", [VALIDATE]),
        ("other", [VALIDATE]),
    ],
)
def test_calls_from_which_nothing_can_come_are_left_out(
    webhook: Webhook, app: str, calls: list[tuple[str, str]]
) -> None:
    assert webhook.create_app(app)[0] == 201
    assert webhook.calls == calls


def test_pod_that_names_its_node_is_validated_and_denied(webhook: Webhook) -> None:
    status, message = webhook.create_app("web", nodeName="node-1")
    assert (status, webhook.calls) == (403, [MUTATE, VALIDATE])
    assert "NodeNameSet" in message


def test_update_and_deletion_of_a_pod_that_was_not_validated(webhook: Webhook) -> None:
    assert webhook.create(SPACE, "kept", metadata={"labels": {"app": "web"}})[0] == 201
    assert webhook.calls == [MUTATE]
    status, message = webhook.patch(f"{SPACE}/pods/kept", {"metadata": {"labels": {LABEL: "api"}}})
    assert (status, webhook.calls) == (403, [("validate", "UPDATE")]), message
    assert "PodgateFieldImmutable" in message


def test_forged_label_is_overwritten_and_the_pod_validated_for_its_owner(webhook: Webhook) -> None:
    assert webhook.create(SPACE, metadata=forge_metadata("api"))[0] == 201
    assert webhook.calls == [MUTATE, VALIDATE]


def test_during_an_outage_only_pods_that_nothing_can_refuse_bypass_a_closed_service(webhook: Webhook) -> None:
    with webhook.stop():
        assert webhook.create_app("api")[0] == 500
        assert webhook.create_app("web")[0] == 500, "its rewrite is missing"
        assert webhook.create(SPACE, metadata=forge_metadata("api"))[0] == 500
        assert webhook.create(SPACE, metadata=forge_metadata("web"))[0] == 201


@pytest.fixture
def newer(policies: Policies) -> Iterator[None]:
    """Put a newer policy in force, under the configurations of the older one."""
    policies.in_force = NEWER
    yield
    policies.in_force = POLICY


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize(
    ("app", "status", "calls", "code"),
    [
        ("web", 201, [MUTATE, VALIDATE], ""),
        ("idle", 403, [VALIDATE], "MutationMissing"),
        ("other", 201, [VALIDATE], ""),
    ],
)
def test_newer_policy_is_noticed(
    webhook: Webhook, app: str, status: int, calls: list[tuple[str, str]], code: str
) -> None:
    found, message = webhook.create_app(app)
    assert (found, webhook.calls) == (status, calls), message
    assert code in message


VALUES = (None, "", "1", "2")
ODD = document(
    service("first", selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["", "1"]}]}, **QUOTA),
    service(
        "second",
        selector={
            "matchExpressions": [
                {"key": "app", "operator": "NotIn", "values": ["", "2"]},
                {"key": "tier", "operator": "Exists"},
            ]
        },
    ),
    service("third", selector={"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, modes=DISABLED),
    service("fourth", selector={"matchLabels": {"tier": ""}}),
    service("fifth", selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["1"]}]}),
)


def test_api_server_evaluates_the_conditions_as_the_tests_do(webhook: Webhook, policies: Policies) -> None:
    """Other tests evaluate the expressions by an interpreter of their own."""
    policies.in_force = ODD
    loaded, configured = load(ODD.encode(), Purpose.SERVE).policy, webhook.configure(ODD)

    def create_and_expect(labels: Json) -> tuple[list[str], list[str]]:
        """Create a Pod; a Pod with a service label claims to have been rewritten."""
        metadata = {"labels": labels, "annotations": {ANNOTATION: loaded.hash} if LABEL in labels else {}}
        assert webhook.create(SPACE, metadata=metadata)[0] in {201, 403}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
        expected = ["mutate"] if is_called(configured["mutate"], pod, WHERE) else []
        final = mutate_pod(loaded, pod, WHERE) if expected else pod
        expected += ["validate"] if is_called(configured["validate"], final, WHERE) else []
        return [path for path, _ in webhook.calls], expected

    def is_in_force() -> bool:
        calls, expected = create_and_expect({"app": "1", "tier": ""})
        return calls == expected == ["mutate", "validate"]

    webhook.plane.wait(is_in_force, "the webhooks to be in force", "kube-apiserver")
    seen = set()
    for app, tier, name in itertools.product(VALUES, VALUES, (None, "second", "none")):
        drawn = {"app": app, "tier": tier, LABEL: name}
        labels = {key: value for key, value in drawn.items() if value is not None}
        calls, expected = create_and_expect(labels)
        assert calls == expected, labels
        seen.add(tuple(calls))
    assert seen == {("mutate",), ("mutate", "validate"), ("validate",)}


def test_longest_expressions_are_within_the_api_servers_limits(webhook: Webhook, policies: Policies) -> None:
    many = [service(f"{'a' * 40}{number:04}") for number in range(1200)]
    policies.in_force = document(*many, service("other", **QUOTA))
    configured = webhook.configure(policies.in_force)
    lengths = [
        len(condition["expression"])
        for configuration in configured.values()
        for entry in configuration["webhooks"]
        for condition in entry["matchConditions"]
        if condition["name"].startswith("may-be-")
    ]
    assert len(lengths) == 2
    assert max(lengths) > 50_000

    def list_calls(app: str) -> list[tuple[str, str]]:
        assert webhook.create_app(app)[0] == 201
        return webhook.calls

    # The API server ignores a call that takes too long, as the first one under such a policy may.
    for app, expected in ((many[99]["name"], [MUTATE]), (many[1199]["name"], [MUTATE, VALIDATE]), ("none", [VALIDATE])):
        webhook.plane.wait(lambda app=app, expected=expected: list_calls(app) == expected, f"the calls {expected}")


def test_no_condition_failed(webhook: Webhook) -> None:
    """The API server counts expressions that fail, for which failurePolicy applies."""
    metrics = webhook.plane.kubectl("get", "--raw", "/metrics").stdout
    assert "apiserver_admission_match_condition_evaluation_seconds_count" in metrics
    assert "apiserver_admission_match_condition_evaluation_errors" not in metrics
