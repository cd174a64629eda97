"""Exceptions in a process: a service differs for the Pods of one workload or selector, which are still charged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.recording import Recorder
from tests.core.reviewing import body, pod
from tests.core.strategies import examples
from tests.harness.overrides import END, END_US, FixedClock, OverridesRecorder, entry
from tests.harness.policy_checks import ImmediateCheck
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_queue_index import MemoryQueueIndex
from webhook.adapters.memory_store import MemoryStore
from webhook.commands.pages.pod_report_page import format_report
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.review import decode
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Surroundings, diagnose
from webhook.core.diagnosis.recomputation import recompute
from webhook.core.document.loading import load_again
from webhook.core.overload import OverloadLimits
from webhook.core.overrides.exceptions import choose_exception
from webhook.core.overrides.loading import load
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.quota import Acquire
from webhook.core.reporting.status import OverridesStatus, ServerStatus, render_server_status
from webhook.core.rollout.canary import BasePolicy
from webhook.core.rollout.selection import Reach
from webhook.fallback.admission_queue import AdmissionQueue
from webhook.fallback.overload_monitor import OverloadMonitor
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy, Candidate
from webhook.policy_in_force.policy_receiver import PolicyReceiver

REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
JOBS = "system:serviceaccount:kube-system:job-controller"
POLICY = b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: db
  match: {namespaces: [db]}
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
- name: web
  match: {namespaces: [shop, other]}
  placement: {nodeSelector: {disk: ssd}, onConflict: {default: Deny}}
  quota: {windows: [{window: 1m, hard: {pods: 2}}]}
  breaker: {quotaExceeded: {}}
"""
WORKLOAD = "workload: {namespace: shop, kind: Deployment, name: web}"


def exception(change: str, target: str = WORKLOAD, until: str = END, service: str = "web") -> str:
    return f"- {{service: {service}, {target}, {change}, until: {until}, reason: INC-1}}\n"


def build_pod(uid: str, owner: str = "web-5d9c7b6f4", kind: str = "ReplicaSet", **labels: str) -> Any:
    """Return a Pod with this controller; a ReplicaSet named as by a Deployment."""
    made = pod(uid=uid)
    template = {"pod-template-hash": owner.rpartition("-")[2]} if kind == "ReplicaSet" else {}
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
    made["metadata"] |= {"labels": {"app": "web", **template, **labels}, "ownerReferences": [reference]}
    made["spec"]["nodeSelector"] = {"disk": "ssd"}
    return made


class Server:
    """Overrides, policy and counters in one process, as in a server."""

    def __init__(self, policy: bytes = POLICY, observers: Observers | None = None) -> None:
        self._policy = policy
        self.wall = FixedClock()
        self.overrides = ActiveOverrides(OverridesRecorder(), self.wall, "here")
        self.clock = VirtualClock(END_US - 3_600_000_000)
        self.active = active = ActivePolicy(self.overrides, self.clock)
        self.overrides.prepare = active.prepare
        self.policies = PolicyReceiver(Observers(), self.clock, ImmediateCheck(), active=active)
        self.store = MemoryStore(self.clock)
        namespaces = FixedNamespaces({"shop": {}, "other": {}, "db": {}})
        self.interceptor = Interceptor(self.policies, self.store, namespaces, observers or Observers())
        self._made = 0

    async def begin(self, *entries: str) -> "Server":
        await self.policies.on_document(self._policy, "policy.yaml")
        await self.overrides.on_document("".join(entries).encode(), "overrides.yaml")
        return self

    async def review(self, half: Half, made: Any, user: str = REPLICA_SETS, namespace: str = "shop") -> Decision:
        asked = body(namespace=namespace, object=made, userInfo={"username": user})
        return (await self.interceptor.review(half, asked)).decision

    async def count_admitted(self, count: int, user: str = REPLICA_SETS, namespace: str = "shop", **made: Any) -> int:
        """Return how many of so many new Pods are admitted."""
        admitted = 0
        for _ in range(count):
            self._made += 1
            decision = await self.review(Half.VALIDATE, build_pod(f"u{self._made}", **made), user, namespace)
            admitted += decision.verdict is Verdict.ADMIT
        return admitted

    async def count_used(self, service: str = "web") -> int:
        compiled = self.policies.get_current()
        assert compiled is not None
        [use] = (await self.store.snapshot(compiled.plans[service])).uses[""]
        return use.used


async def test_the_pods_of_one_workload_have_a_larger_quota_and_are_charged_to_the_same() -> None:
    server = await Server().begin(exception("quotaFactor: 3"))
    assert await server.count_admitted(3, owner="api-5d9c7b6f4") == 2
    assert await server.count_admitted(5) == 4
    assert await server.count_used() == 6
    assert await server.count_admitted(1, owner="api-5d9c7b6f4") == 0


async def test_a_new_replica_set_of_the_same_deployment_has_the_exception_too() -> None:
    server = await Server().begin(exception("modes: {quota: Audit}"))
    assert await server.count_admitted(4) == 4
    assert await server.count_admitted(4, owner="web-7c8d9b5c6f") == 4
    assert await server.count_used() == 8


@pytest.mark.parametrize(
    ("user", "namespace", "made"),
    [
        ("alice", "shop", {}),
        ("system:serviceaccount:shop:default", "shop", {}),
        ("system:serviceaccount:shop:replicaset-controller", "shop", {}),
        (REPLICA_SETS, "other", {}),
        (REPLICA_SETS, "shop", {"owner": "web-5d9c7b6f4-x"}),
        (REPLICA_SETS, "shop", {"owner": "webs-5d9c7b6f4"}),
        (REPLICA_SETS, "shop", {"owner": "web", "kind": "StatefulSet"}),
        (JOBS, "shop", {"owner": "web", "kind": "Job"}),
    ],
)
async def test_a_pod_that_only_says_it_belongs_to_the_workload_has_no_exception(
    user: str, namespace: str, made: dict[str, Any]
) -> None:
    """A tenant may write any ownerReference and any label: only what Kubernetes' own controller creates is believed."""
    server = await Server().begin(exception("modes: {quota: Audit}"))
    assert await server.count_admitted(5, user, namespace, **made) == 2


@given(st.text("abc-", max_size=8), st.sampled_from(["alice", REPLICA_SETS, JOBS]), st.booleans())
@examples(60)
async def test_no_owner_that_a_tenant_writes_gains_the_exception(owner: str, user: str, is_labelled: bool) -> None:  # noqa: FBT001
    server = await Server().begin(exception("modes: {quota: Audit}", WORKLOAD.replace("name: web", "name: a-b")))
    labels = {"pod-template-hash": owner} if is_labelled else {}
    admitted = await server.count_admitted(3, user, owner=owner, kind="Deployment", **labels)
    assert admitted == 2 or (user != "alice" and owner == "a-b")


async def test_a_forced_breaker_lets_the_excepted_pods_pass() -> None:
    forced = f"- {{service: web, breaker: ForcedOpen, until: {END}, reason: INC-1}}\n"
    server = await Server().begin(forced, exception("modes: {breaker: Audit}"))
    assert await server.count_admitted(1, owner="api-5d9c7b6f4") == 0
    assert await server.count_admitted(3) == 2
    assert await server.count_used() == 2


async def test_other_modes_differ_for_both_halves() -> None:
    server = await Server().begin(exception("modes: {placement: Audit}"))
    wrong = build_pod("u1")
    wrong["spec"]["nodeSelector"] = {"disk": "hdd"}
    assert (await server.review(Half.VALIDATE, wrong)).verdict is Verdict.ADMIT
    stranger = json.loads(json.dumps(wrong))
    stranger["metadata"]["ownerReferences"][0]["name"] = "api-5d9c7b6f4"
    assert (await server.review(Half.VALIDATE, stranger)).verdict is Verdict.DENY
    del stranger["spec"]["nodeSelector"], wrong["spec"]["nodeSelector"]
    written = [
        any(operation.path == "/spec/nodeSelector" for operation in (await server.review(Half.MUTATE, made)).patch)
        for made in (stranger, wrong)
    ]
    assert written == [True, False]


async def test_a_selector_takes_pods_by_their_labels_whoever_creates_them() -> None:
    target = "pods: {namespace: shop, selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}}"
    server = await Server().begin(exception("modes: {quota: Audit}", target))
    assert await server.count_admitted(4, "alice", tier="gold") == 4
    assert await server.count_admitted(4, "alice", "other", tier="gold") == 0
    assert await server.count_admitted(4, tier="silver") == 0


async def test_of_two_exceptions_for_one_pod_the_workloads_counts() -> None:
    target = "pods: {namespace: shop, selector: {matchLabels: {app: web}}}"
    server = await Server().begin(exception("quotaFactor: 5", target), exception("quotaFactor: 2"))
    assert await server.count_admitted(9) == 4
    assert await server.count_admitted(9, owner="api-5d9c7b6f4") == 6


async def test_entries_for_the_service_hold_for_the_workload_unless_its_own_say_otherwise() -> None:
    whole = f"- {{service: web, quotaFactor: 2, modes: {{placement: Audit}}, until: {END}, reason: INC-2}}\n"
    server = await Server().begin(whole, exception("quotaFactor: 4"))
    assert await server.count_admitted(9) == 8
    wrong = build_pod("x")
    wrong["spec"]["nodeSelector"] = {"disk": "hdd"}
    assert "NodeSelector" not in (await server.review(Half.VALIDATE, wrong)).status.message


async def test_the_pods_of_a_cron_job_are_those_of_its_jobs() -> None:
    target = "workload: {namespace: shop, kind: CronJob, name: backup}"
    server = await Server().begin(exception("modes: {quota: Audit}", target))
    assert await server.count_admitted(4, JOBS, owner="backup-29384756", kind="Job") == 4
    assert await server.count_admitted(4, JOBS, owner="backup-again", kind="Job") == 0


async def test_an_exception_ends_at_its_microsecond() -> None:
    server = await Server().begin(exception("modes: {quota: Audit}"))
    await server.overrides.look_ahead()
    server.wall.us = END_US - 1
    assert await server.count_admitted(3) == 3
    server.wall.us = END_US
    assert await server.count_admitted(3) == 0
    compiled = server.policies.get_current()
    assert compiled is not None
    assert not compiled.is_selective


async def test_both_halves_of_a_pod_have_the_exception_under_a_former_policy() -> None:
    server = await Server().begin(exception("modes: {quota: Audit}"))
    mutated = await server.review(Half.MUTATE, build_pod(""))
    await server.policies.on_document(POLICY + b"# changed\n", "policy.yaml")
    for number in range(4):
        made = build_pod(f"f{number}")
        made["metadata"] |= {"annotations": {"podgate.io/policy-hash": mutated.policy_hash}}
        made["metadata"]["labels"]["podgate.io/service"] = "web"
        made["metadata"]["managedFields"] = [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]
        decision = await server.review(Half.VALIDATE, made)
        assert (decision.verdict, decision.policy_hash) == (Verdict.ADMIT, mutated.policy_hash)


async def test_exceptions_of_two_services_do_not_disturb_each_other() -> None:
    target = "workload: {namespace: db, kind: StatefulSet, name: pg}"
    server = await Server().begin(
        exception("quotaFactor: 4", target, service="db"),
        exception("quotaFactor: 3"),
        exception("modes: {quota: Audit}"),
    )
    user = "system:serviceaccount:kube-system:statefulset-controller"
    assert await server.count_admitted(9, user, "db", owner="pg", kind="StatefulSet") == 4
    assert await server.count_admitted(9) == 9
    assert await server.count_used("db") == 4


QUEUEING = b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1m, hard: {pods: 2}}], whenExceeded: Queue, queue: {maxPods: 9}}
"""


async def test_a_pod_of_an_exception_waits_for_its_own_limits_and_not_behind_others() -> None:
    """With a larger quota it would else gain nothing while others wait."""
    server = await Server(QUEUEING).begin(exception("quotaFactor: 3"))
    assert await server.count_admitted(2, owner="api-5d9c7b6f4") == 2
    compiled = server.policies.get_current()
    assert compiled is not None
    index = MemoryQueueIndex(server.clock)
    await index.register(compiled.plans["web"], "w1")
    monitor = OverloadMonitor(OverloadLimits(), server.clock, lambda: "", lambda *_: None)
    queue = AdmissionQueue(server.store, index, server.clock, monitor)
    for number, owner, waits in ((1, "api-5d9c7b6f4", True), (2, "web-5d9c7b6f4", False)):
        made = build_pod(f"q{number}", owner)
        request = decode(body(namespace="shop", object=made, userInfo={"username": REPLICA_SETS}))
        plan = choose_exception(compiled, request).plans["web"]
        asked = Acquire(plan, "shop", f"q{number}", {"pods": 1}, "user:a", peek=True)
        assert bool(await queue.find_reason_to_wait(asked, is_dry_run=True)) is waits


async def test_status_shows_exceptions_apart_from_overrides_of_the_service() -> None:
    server = await Server().begin(exception("quotaFactor: 3"), entry("web", "2"))
    compiled = server.policies.get_current()
    assert compiled is not None
    overrides = OverridesStatus("here", (), server.overrides.get_current().entries)
    document = render_server_status(
        ServerStatus("0", END_US, END_US, policy=compiled.loaded, overrides=overrides, plans=compiled.plans)
    )
    shown = next(service for service in document["services"] if service["name"] == "web")
    assert shown["override"]["quotaFactor"] == 2
    [excepted] = shown["exceptions"]
    assert (excepted["quotaFactor"], excepted["workload"]) == (
        3,
        {"namespace": "shop", "kind": "Deployment", "name": "web"},
    )
    assert [window["hard"] for window in shown["windows"]] == [4]


async def test_a_canary_leaves_both_its_policies_the_exception() -> None:
    server = Server()
    await server.overrides.on_document(exception("quotaFactor: 3").encode(), "overrides.yaml")
    other = POLICY.replace(b"disk: ssd", b"disk: hdd").replace(b"hard: {pods: 2}", b"hard: {pods: 9}")
    stable, candidate = load_again(POLICY), load_again(other)
    await server.active.swap(stable, Candidate(candidate, Reach(CanaryBy.WORKLOAD, percent=50)))
    request = decode(body(namespace="shop", object=build_pod("u1"), userInfo={"username": REPLICA_SETS}))
    current = server.active.get_current()
    assert isinstance(current, BasePolicy)
    for policy in (current, current.canary):
        excepted = choose_exception(policy, request)
        assert excepted is not policy
        assert [limit.hard for _, _, limit in excepted.plans["web"].limits] == [6]
        assert [limit.hard for _, _, limit in policy.plans["web"].limits] == [2]
    assert choose_exception(current.canary, request).services["web"].placement_plan is not None


async def test_a_recorded_decision_under_an_exception_is_recomputed_and_explained() -> None:
    recorder = Recorder()
    server = await Server(observers=Observers(recorder)).begin(exception("modes: {placement: Audit, quota: Audit}"))
    wrong = build_pod("u1")
    wrong["spec"]["nodeSelector"] = {"disk": "hdd"}
    decided = await server.review(Half.VALIDATE, wrong)
    [record] = recorder.records
    assert [found.target_key for found in record.override_entries] != [""]
    again = recompute(record, CompiledPolicy(load_again(POLICY)))
    assert (again.verdict, again.findings) == (decided.verdict, decided.findings)
    report = diagnose(PodFacts("shop", record.name, "u1", records=(record,)), Surroundings(END_US))
    assert report is not None
    assert "  override  workload: {namespace: shop, kind: Deployment, name: web}, modes: " in format_report(report)


def test_every_test_of_the_end_is_one_and_the_same() -> None:
    [found] = load(exception("quotaFactor: 2").encode()).entries
    assert [found.is_live(END_US - 1), found.is_live(END_US)] == [True, False]
