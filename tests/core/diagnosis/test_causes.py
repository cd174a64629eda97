"""Causes outside of admission: first line and remedy of each, from what kubelets, nodes and controllers write."""

from typing import Any

import msgspec
import pytest

from tests.core.reviewing import policy_of
from tests.core.strategies import Json
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Report, Surroundings, WorkloadFacts, diagnose, diagnose_workload
from webhook.core.diagnosis.objects import (
    ReportedEvent,
    ReportedMaker,
    ReportedNamespace,
    ReportedNode,
    ReportedOwner,
    ReportedPod,
)
from webhook.core.kubernetes.timestamps import format_rfc3339

NOW_US = 1_800_000_060_000_000  # 2027-01-15T08:01:00Z
STARTED, ENDED, LATER = (f"2027-01-15T08:00:{seconds}Z" for seconds in ("10", "20", "30"))
UNREADY = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "c is not ready"}]
READY = [{"type": "Ready", "status": "True"}]


def pod(spec: Json | None = None, metadata: Json | None = None, **status: Any) -> ReportedPod:
    document = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", **(metadata or {})},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], **(spec or {})},
        "status": {"phase": "Running", "conditions": UNREADY, **status},
    }
    return msgspec.convert(document, ReportedPod)


def container(*, ready: bool = False, restarts: int = 0, last: Json | None = None, **state: Any) -> list[Json]:
    last_state = {} if last is None else {"lastState": {"terminated": last}}
    return [{"name": "c", "ready": ready, "restartCount": restarts, "state": state, **last_state}]


def build_ended_state(exit_code: int, reason: str = "Error", **more: str) -> Json:
    return {"exitCode": exit_code, "reason": reason, "startedAt": STARTED, "finishedAt": ENDED, **more}


def build_crashing_container(last: Json, restarts: int = 3) -> list[Json]:
    return container(restarts=restarts, last=last, waiting={"reason": "CrashLoopBackOff", "message": "back-off 40s"})


def event(reason: str, message: str, at: str = LATER, uid: str = "u1", field: str = "") -> ReportedEvent:
    about = {"kind": "Pod", "name": "web", "uid": uid, "fieldPath": field}
    document = {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": at, "type": "Warning"}
    return msgspec.convert(document, ReportedEvent)


def node(**condition: str) -> ReportedNode:
    conditions = [{"type": "Ready", "status": "True", **condition}]
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"conditions": conditions}}, ReportedNode)


def report(
    reported: ReportedPod | None, *events: ReportedEvent, hosts: dict[str, ReportedNode | None] | None = None
) -> Report:
    found = diagnose(PodFacts("shop", "web", "u1", reported, events), Surroundings(NOW_US, hosts=hosts))
    assert found is not None
    return found


def format_first_line(found: Report) -> str:
    return f"{found.token}: {found.summary}"


CREATING = container(waiting={"reason": "ContainerCreating"})
WAITS = "Starting: on n1, not ready yet: c"
LIMITED = {"containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi"}}}]}
FIELD = "spec.containers{c}"
UNHEALTHY = event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", field=FIELD)
ALIVE = event("Unhealthy", "Liveness probe failed: connection refused", at="2027-01-15T08:00:15Z", field=FIELD)
RUNS = {"running": {"startedAt": STARTED}}
PODS: dict[str, tuple[ReportedPod, tuple[ReportedEvent, ...], str, str]] = {
    "out of memory, with a limit": (
        pod(LIMITED, containerStatuses=build_crashing_container(build_ended_state(137, "OOMKilled"))),
        (),
        "Failed: container c: OOMKilled: exit code 137: 3 restarts: it used more memory than its limit 64Mi",
        "raise resources.limits.memory of container c, or let it use less",
    ),
    "out of memory, without a limit": (
        pod(containerStatuses=container(terminated=build_ended_state(137, "OOMKilled"))),
        (),
        "Failed: container c: OOMKilled: exit code 137: no memory was left for it",
        "set requests and limits of memory of container c",
    ),
    "a termination message": (
        pod(containerStatuses=build_crashing_container(build_ended_state(1, message="no configuration\n"))),
        (),
        "Failed: container c: CrashLoopBackOff: exit code 1: 3 restarts: no configuration",
        "read kubectl logs web -c c -n shop --previous",
    ),
    "between two runs": (
        pod(containerStatuses=container(terminated=build_ended_state(2))),
        (),
        "Failed: container c: Error: exit code 2",
        "read kubectl logs web -c c -n shop",
    ),
    "killed by a probe": (
        pod(containerStatuses=build_crashing_container(build_ended_state(137))),
        (ALIVE,),
        (
            "Failed: container c: CrashLoopBackOff: exit code 137: 3 restarts: killed: container c: "
            "Liveness probe failed: connection refused"
        ),
        "repair what the probe asks of container c, or correct its livenessProbe",
    ),
    "a probe of an earlier run": (
        pod(containerStatuses=build_crashing_container(build_ended_state(137))),
        (event("Unhealthy", "Liveness probe failed: old", at="2027-01-15T08:00:05Z", field=FIELD),),
        "Failed: container c: CrashLoopBackOff: exit code 137: 3 restarts: back-off 40s",
        "read kubectl logs web -c c -n shop --previous",
    ),
    "readiness": (
        pod(containerStatuses=container(**RUNS)),
        (UNHEALTHY,),
        "Starting: on n1, not ready yet: container c: Readiness probe failed: HTTP probe failed with statuscode: 503",
        "repair what the probe asks of container c, or correct its readinessProbe",
    ),
    "readiness of another container": (
        pod(containerStatuses=container(**RUNS)),
        (event("Unhealthy", "Readiness probe failed: x", field="spec.containers{other}"),),
        WAITS,
        "",
    ),
    "readiness, and ready again": (
        pod(containerStatuses=container(ready=True, **RUNS), conditions=READY),
        (UNHEALTHY,),
        "Running: on n1, 1 of 1 containers ready",
        "",
    ),
    "readiness gate": (
        pod(
            containerStatuses=container(ready=True, **RUNS),
            conditions=[{"type": "Ready", "status": "False", "message": 'the status of pod readiness gate "x" is not'}],
        ),
        (),
        'Starting: on n1, not ready yet: the status of pod readiness gate "x" is not',
        "",
    ),
    "volume": (
        pod(phase="Pending", containerStatuses=CREATING),
        (event("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "db" not found'),),
        'Failed: FailedMount: MountVolume.SetUp failed for volume "v" : secret "db" not found',
        "create Secret db in namespace shop",
    ),
    "volume, mended": (
        pod(phase="Pending", containerStatuses=CREATING),
        (event("FailedMount", 'secret "db" not found', at=ENDED), event("Pulling", "Pulling image", at=LATER)),
        WAITS,
        "",
    ),
    "sandbox": (
        pod(phase="Pending", containerStatuses=CREATING),
        (event("FailedCreatePodSandBox", "Failed to create pod sandbox: no network"),),
        "Failed: FailedCreatePodSandBox: Failed to create pod sandbox: no network",
        "repair the network plugin or the container runtime of node n1",
    ),
    "finalizer, unscheduled": (
        pod({"nodeName": None}, {"deletionTimestamp": ENDED, "finalizers": ["example.com/a", "example.com/b"]}),
        (),
        f"Terminating: since {ENDED}: finalizers example.com/a, example.com/b hold it",
        (
            "see that the controllers that set them run; only if they never will again: kubectl patch pod web -n shop"
            """ --type=merge -p '{"metadata":{"finalizers":null}}'"""
        ),
    ),
    "finalizer, while its containers end": (
        pod(
            metadata={"deletionTimestamp": LATER, "deletionGracePeriodSeconds": 30, "finalizers": ["example.com/a"]},
            containerStatuses=container(ready=True, **RUNS),
        ),
        (),
        "Terminating: since 2027-01-15T08:00:00Z",
        "",
    ),
    "victim": (
        pod(
            metadata={"deletionTimestamp": LATER},
            conditions=[
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "default-scheduler: preempting to accommodate a higher priority pod",
                }
            ],
        ),
        (),
        (
            f"Terminating: since {LATER}: PreemptionByScheduler: default-scheduler: preempting to accommodate a higher"
            " priority pod"
        ),
        "give it a higher priorityClassName, or add nodes",
    ),
    "nominated": (
        pod(
            {"nodeName": None},
            nominatedNodeName="n2",
            conditions=[{"type": "PodScheduled", "status": "False", "message": "0/4 nodes"}],
        ),
        (),
        "Unschedulable: it is nominated for node n2, where Pods of lower priority are being ended for it",
        "wait until they have ended: kubectl get pods -A --field-selector spec.nodeName=n2",
    ),
}


SIDECAR_ENDED = [{"name": "proxy", "restartCount": 0, "state": {"terminated": build_ended_state(143)}}]
TWO_STATES = [
    *container(terminated=build_ended_state(0, "Completed")),
    {"name": "shipper", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}},
]


def test_a_sidecar_that_was_ended_with_its_pod_is_not_blamed() -> None:
    failed = pod(
        {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
        phase="Failed",
        initContainerStatuses=SIDECAR_ENDED,
        containerStatuses=container(terminated=build_ended_state(1)),
    )
    found = diagnose(PodFacts("shop", "web", pod=failed), Surroundings(NOW_US))
    assert found is not None
    assert f"{found.token}: {found.summary}" == "Failed: container c: Error: exit code 1"
    assert found.remedy == "read kubectl logs web -c c -n shop"


def test_a_container_that_ended_well_has_not_failed() -> None:
    found = diagnose(PodFacts("shop", "web", pod=pod(containerStatuses=TWO_STATES)), Surroundings(NOW_US))
    assert found is not None
    assert f"{found.token}: {found.summary}" == "Running: on n1: c ended well, shipper still running"


@pytest.mark.parametrize("name", PODS)
def test_first_line_and_remedy_of_a_pod(name: str) -> None:
    reported, events, expected, remedy = PODS[name]
    found = report(reported, *events)
    assert (format_first_line(found), found.remedy) == (expected, remedy)


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("InvalidImageName", "couldn't parse image name: invalid reference format", "correct the image's name"),
        ("ErrImageNeverPull", "not present with pull policy of Never", "load the image onto the node, "),
        ("ErrImagePull", "pull access denied, repository does not exist", "see that the image exists, and that image"),
        ("ErrImagePull", "docker.io/library/i:9: not found", "correct the image's name or tag"),
        ("ErrImagePull", "dial tcp: lookup registry: no such host", "see that the node reaches the image's registry"),
        ("CreateContainerConfigError", 'configmap "settings" not found', "create ConfigMap settings in namespace shop"),
        ("CreateContainerConfigError", "couldn't find key pw in Secret shop/db", "add key pw to Secret shop/db"),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "set securityContext."),
        ("RunContainerError", "exec: x: not found in $PATH", "correct command, args or mounts of container c"),
    ],
)
def test_remedy_is_by_the_message_of_the_kubelet(reason: str, message: str, remedy: str) -> None:
    found = report(pod(containerStatuses=container(waiting={"reason": reason, "message": message})))
    assert format_first_line(found) == f"Failed: container c: {reason}: {message}"
    assert found.remedy.startswith(remedy)


def test_node_of_a_pod_is_told_before_its_containers() -> None:
    reported = pod(containerStatuses=container(ready=True, **RUNS))
    silent = node(status="Unknown", reason="NodeStatusUnknown", message="Kubelet stopped posting node status.")
    for hosts, expected in (
        ({"n1": silent}, "Failed: node n1 is not ready: NodeStatusUnknown: Kubelet stopped posting node status."),
        ({"n1": None}, "Failed: node n1 does not exist"),
        ({"n1": node()}, "Starting: on n1, not ready yet: c is not ready"),
        ({}, "Starting: on n1, not ready yet: c is not ready"),
        (None, "Starting: on n1, not ready yet: c is not ready"),
    ):
        assert format_first_line(report(reported, hosts=hosts)) == expected


def test_pod_that_is_gone_is_told_by_its_event() -> None:
    found = report(None, event("Preempted", "Preempted by pod u9 on node n1"))
    expected = (
        f"Failed: preempted by a Pod of higher priority at {LATER}: Preempted by pod u9 on node n1; it does not exist"
    )
    assert format_first_line(found) == expected
    nothing = diagnose(PodFacts("shop", "web", "u1", None, (event("Preempted", "x", uid="u2"),)), Surroundings(NOW_US))
    assert nothing is None


# --- workloads ---


def maker(kind: str, spec: Json, **status: Any) -> ReportedMaker:
    metadata = {"name": "web", "uid": "m1", "creationTimestamp": STARTED}
    return msgspec.convert({"metadata": metadata, "kind": kind, "spec": spec, "status": status}, ReportedMaker)


def owner(kind: str, spec: Json, **status: Any) -> ReportedOwner:
    metadata = {"name": "web", "namespace": "shop", "uid": "o1"}
    return msgspec.convert({"metadata": metadata, "kind": kind, "spec": spec, "status": status}, ReportedOwner)


def workload(kind: str, *owners: ReportedOwner, around: Surroundings | None = None, **facts: Any) -> Report:
    found = diagnose_workload(WorkloadFacts(kind, "shop", "web", owners, **facts), around or Surroundings(NOW_US))
    assert found is not None
    return found


FAILED = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}]
WORKLOADS: dict[str, tuple[Report, str]] = {
    "paused": (
        workload("Deployment", maker=maker("Deployment", {"paused": True})),
        "Idle: paused (spec.paused): Pods of its present template are not created",
    ),
    "paused, and all of its Pods are of its template": (
        workload(
            "Deployment",
            owner("ReplicaSet", {"replicas": 1}, replicas=1),
            maker=maker("Deployment", {"paused": True}, updatedReplicas=1),
            pods=(PodFacts("shop", "web", "u1", PODS["readiness, and ready again"][0]),),
        ),
        "Running: 1 of 1 Pods: on n1, 1 of 1 containers ready",
    ),
    "suspended Job": (
        workload("Job", owner("Job", {"suspend": True})),
        "Idle: suspended (spec.suspend): no Pods run",
    ),
    "failed Job": (workload("Job", owner("Job", {}, conditions=FAILED)), "Failed: DeadlineExceeded: too long"),
    "Job without parallelism": (
        workload("Job", owner("Job", {"parallelism": 0, "completions": 5})),
        "Idle: it wants no Pods: spec.parallelism is 0",
    ),
    "Job of a CronJob without parallelism": (
        workload("CronJob", owner("Job", {"parallelism": 0}), maker=maker("CronJob", {"schedule": "@daily"})),
        "Idle: it wants no Pods: spec.parallelism is 0",
    ),
    "Job that needs no completion": (
        workload("Job", owner("Job", {"parallelism": 2, "completions": 0})),
        "Idle: it wants no more Pods: 0 have succeeded",
    ),
    "suspended CronJob": (
        workload("CronJob", maker=maker("CronJob", {"suspend": True, "schedule": "@daily"})),
        "Idle: suspended (spec.suspend): no new Jobs are created",
    ),
    "CronJob before its time": (
        workload("CronJob", maker=maker("CronJob", {"schedule": "0 3 * * *", "timeZone": "Asia/Tokyo"})),
        f"Idle: not due: its schedule is '0 3 * * *' Asia/Tokyo; it was due never since it was created at {STARTED}",
    ),
    "CronJob after its time": (
        workload("CronJob", maker=maker("CronJob", {"schedule": "0 3 * * *"}, lastScheduleTime=ENDED)),
        f"Idle: not due: its schedule is '0 3 * * *'; it was due last at {ENDED}",
    ),
    "CronJob that cannot create its Job": (
        workload(
            "CronJob",
            maker=maker("CronJob", {"schedule": "0 3 * * *"}),
            events=(event("FailedCreate", "Error creating job: x", uid="m1"),),
        ),
        "Failed: it creates no Job: FailedCreate: Error creating job: x",
    ),
    "DaemonSet without nodes": (
        workload("DaemonSet", owner("DaemonSet", {})),
        "Idle: it wants no Pods: no node fits its Pods",
    ),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_first_line_of_a_workload(name: str) -> None:
    found, expected = WORKLOADS[name]
    assert format_first_line(found) == expected


def test_job_without_parallelism_is_given_some_by_its_remedy() -> None:
    patch = """kubectl patch job/web -n shop --type=merge -p '{"spec":{"parallelism":1}}'"""
    assert WORKLOADS["Job without parallelism"][0].remedy == f"{patch}, or as many as shall run at once"


def test_namespace_that_is_being_deleted_is_the_cause() -> None:
    conditions = [{"type": "NamespaceFinalizersRemaining", "status": "True", "message": "x remains"}]
    document = {"metadata": {"name": "shop", "deletionTimestamp": ENDED}, "status": {"conditions": conditions}}
    around = Surroundings(NOW_US, namespace=msgspec.convert(document, ReportedNamespace))
    found = workload("StatefulSet", owner("StatefulSet", {"replicas": 2}), around=around)
    assert format_first_line(found) == (
        f"Terminating: namespace shop has been terminating since {ENDED}, so no Pod can be created; x remains"
    )


CLASSY = CompiledPolicy(policy_of("- {name: web, match: {namespaces: [shop]}, placement: {priorityClassName: gold}}"))


@pytest.mark.parametrize(
    ("message", "text", "remedy"),
    [
        (
            'pods "web-" is forbidden: no PriorityClass with name gold was found',
            "PriorityClass gold does not exist, and service web writes it (placement.priorityClassName)",
            "create PriorityClass gold, or change placement.priorityClassName of service web",
        ),
        (
            'pods "web-" is forbidden: no PriorityClass with name own was found',
            'not by Podgate: pods "web-" is forbidden: no PriorityClass with name own was found',
            "create PriorityClass own, or correct spec.priorityClassName in the Pod template",
        ),
        (
            'pods "web-" is forbidden: exceeded quota: few, used: pods=1',
            'not by Podgate: pods "web-" is forbidden: exceeded quota: few, used: pods=1',
            "raise ResourceQuota few in namespace shop, or end Pods that it counts",
        ),
        (
            'pods "web-" is forbidden: failed quota: few: must specify limits.cpu for: c',
            'not by Podgate: pods "web-" is forbidden: failed quota: few: must specify limits.cpu for: c',
            "set in the Pod template what ResourceQuota few counts: limits.cpu for: c",
        ),
        (
            'admission webhook "other.example.com" denied the request: no',
            "not by Podgate: no",
            "change the Pod template as webhook other.example.com asks",
        ),
        (
            'failed calling webhook "other.example.com": connection refused',
            "not by Podgate: connection refused",
            "see that the service of webhook other.example.com answers",
        ),
    ],
)
def test_refusal_of_others_has_its_remedy(message: str, text: str, remedy: str) -> None:
    since = format_rfc3339(NOW_US)
    conditions = [{"type": "ReplicaFailure", "status": "True", "message": message, "lastTransitionTime": since}]
    found = workload(
        "ReplicaSet",
        owner("ReplicaSet", {"replicas": 1}, conditions=conditions),
        around=Surroundings(NOW_US, in_force=CLASSY),
    )
    assert (format_first_line(found), found.remedy) == (f"Denied: 1 of 1 Pods: {text}", remedy)
