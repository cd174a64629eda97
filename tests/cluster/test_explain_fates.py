"""`podgate explain` on a real control plane: the true cause in the first line, before and after the cause ends."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster import kubelet_reports as kubelet
from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controlplane import ControlPlane
from tests.cluster.explained_fates import (
    CLASSY,
    ENDING,
    GUARDED,
    NAMESPACES,
    POLICY,
    QUEUED,
    REPORTED,
    RUNNING,
    SECURE,
    SMALL,
    SPACE,
    UNSEEN,
    Change,
    ExplainedFate,
    create,
    delete,
    patch,
    pod,
    report_status,
    steps,
    template,
    workload,
)
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kwok import NODES, node

_APPS, _BATCH, _CORE = (f"/{group}/namespaces" for group in ("apis/apps/v1", "apis/batch/v1", "api/v1"))
_GONE = "fates-gone"
_RUNS = ("Started", "Started container c")
_GRACE = {"terminationGracePeriodSeconds": 0}
_LOW, _HIGH = "fates-low", "fates-high"


@pytest.fixture(scope="module")
def shop(identities: Identities) -> Iterator[Installation]:
    """Start a cluster of its own, where kwok may stop and Nodes may go, and install Podgate."""
    with ControlPlane(callers=identities.callers) as plane:
        plane.apply(*stand_in_service())
        small = node("fates-small", **{"fates/size": "small"})
        small["status"]["allocatable"]["cpu"] = small["status"]["capacity"]["cpu"] = "1"
        plane.add_nodes(*NODES[:2], node(_GONE, **{"fates/gone": "yes"}), small)
        flags = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
        with install_podgate(plane, identities.files, POLICY, NAMESPACES, arguments=flags) as installation:
            installation.wait_for_calls()
            yield installation


def _priority(name: str, value: int) -> Change:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    return create("/apis/scheduling.k8s.io/v1/priorityclasses", body)


def _fills(priority: str) -> dict[str, Any]:
    """Return the spec of a Pod for which the small node has room once."""
    amounts = {"requests": {"cpu": "900m"}}
    fits = {"nodeSelector": {"fates/size": "small"}, "priorityClassName": priority}
    return {**fits, **_GRACE, "container": {"resources": amounts}}


def _scale(app: str, replicas: int) -> Change:
    return patch(f"{_APPS}/{SPACE}/deployments/{app}", {"spec": {"replicas": replicas}})


def _pause(app: str, *, paused: bool) -> Change:
    return patch(f"{_APPS}/{SPACE}/deployments/{app}", {"spec": {"paused": paused}})


def _quota(pods: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": pods}}}


def _enforce(level: str) -> Change:
    label = {"pod-security.kubernetes.io/enforce": level}
    return patch(f"{_CORE[:-11]}/namespaces/{SECURE}", {"metadata": {"labels": label}})


_VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_GUARD = create(
    f"{_VALIDATING}ies",
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "fates-guard"},
        "spec": {
            "matchConstraints": {"resourceRules": [_RULE]},
            "validations": [{"expression": "'owner' in object.metadata.labels", "message": "a Pod needs an owner"}],
        },
    },
)
_GUARDED = create(
    f"{_VALIDATING}ybindings",
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "fates-guard"},
        "spec": {
            "policyName": "fates-guard",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": GUARDED}}},
        },
    },
)


def _wait_until_denied(shop: Installation) -> None:
    """Wait until the API server enforces the policy."""
    body = {"apiVersion": "v1", "kind": "Pod", **template("probe")}
    body["metadata"]["name"] = "probe"
    path = f"{_CORE}/{GUARDED}/pods?dryRun=All"
    shop.plane.wait(lambda: shop.plane.api.request("POST", path, body)[0] == 422, "the policy to be enforced")


_CREATE_ACCOUNT = create(
    f"{_CORE}/{SPACE}/serviceaccounts",
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}},
)


def _find_silent_node(shop: Installation) -> str:
    path = kubelet.pod_path(shop.plane, SPACE, "silent")
    return f"/api/v1/nodes/{shop.plane.api.get(path)['spec']['nodeName']}/status"


def _node_falls_silent(shop: Installation) -> None:
    """Stop the heartbeats of nodes, and write the status that the node controller writes for a silent one."""
    path = _find_silent_node(shop)
    shop.plane.stop_component("kwok")
    text = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    condition = {"type": "Ready", "status": "Unknown", **text, "lastTransitionTime": kubelet.moment()}
    kubelet.patch(shop.plane, path, {"status": {"conditions": [condition]}})


def _node_speaks(shop: Installation) -> None:
    text = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    condition = {"type": "Ready", "status": "True", **text, "lastTransitionTime": kubelet.moment()}
    kubelet.patch(shop.plane, _find_silent_node(shop), {"status": {"conditions": [condition]}})
    kubelet.write(shop.plane, kubelet.pod_path(shop.plane, SPACE, "silent"), kubelet.ready())
    shop.plane.start_component("kwok")


def _node_returns(shop: Installation) -> None:
    shop.plane.add_nodes(node(_GONE, **{"fates/gone": "yes"}))


def _due_now(shop: Installation) -> None:
    """Wait until the controller has started the Job of a CronJob, and written it into `status.active`."""
    path = f"{_BATCH}/{SPACE}/cronjobs/minutely"
    shop.plane.wait(lambda: shop.plane.api.get(path)["status"].get("active"), "the CronJob to have an active Job")


FATES: dict[str, ExplainedFate] = {
    "out of memory": ExplainedFate(
        "deploy/hungry",
        steps(
            workload("Deployment", "hungry", container={"resources": {"limits": {"memory": "64Mi"}}}),
            report_status(
                "hungry",
                lambda: kubelet.make_waiting_status(
                    "CrashLoopBackOff",
                    "back-off 40s restarting failed container=c pod=hungry-1_fates-shop(2d1f)",
                    3,
                    kubelet.make_last_state(137, "OOMKilled"),
                ),
            ),
        ),
        r"Failed: 1 of 1 Pods: container c: OOMKilled: exit code 137: 3 restarts: "
        r"it used more memory than its limit 64Mi\n",
        report_status("hungry", kubelet.ready),
        remedy="raise resources.limits.memory of container c",
    ),
    "crash loop": ExplainedFate(
        "pod/crashing",
        steps(
            pod("crashing"),
            report_status(
                "crashing",
                lambda: kubelet.make_waiting_status(
                    "CrashLoopBackOff", "back-off 40s restarting failed container=c", 3, kubelet.make_last_state(1)
                ),
            ),
        ),
        r"Failed: container c: CrashLoopBackOff: exit code 1: 3 restarts: back-off 40s",
        report_status("crashing", kubelet.ready),
        remedy=f"kubectl logs crashing -c c -n {SPACE} --previous",
    ),
    "no such command": ExplainedFate(
        "ds/commandless",
        steps(
            workload("DaemonSet", "commandless", nodeSelector={"fates/size": "small"}),
            report_status(
                "commandless",
                lambda: kubelet.make_waiting_status(
                    "CrashLoopBackOff",
                    "back-off 20s restarting failed container=c",
                    2,
                    kubelet.make_last_state(128, "StartError", 'exec: "serve": executable file not found in $PATH'),
                ),
            ),
        ),
        r'Failed: 1 of 1 Pods: container c: CrashLoopBackOff: exit code 128: 2 restarts: exec: "serve": executable',
        report_status("commandless", kubelet.ready),
        remedy="correct command, args or mounts of container c",
    ),
    "no such image": ExplainedFate(
        "sts/imageless",
        steps(
            workload("StatefulSet", "imageless", of={"serviceName": "imageless"}),
            report_status(
                "imageless",
                lambda: kubelet.make_waiting_status(
                    "ImagePullBackOff",
                    'Back-off pulling image "i": ErrImagePull: rpc error: code = NotFound desc = failed to pull and'
                    ' unpack image "docker.io/library/i:latest": docker.io/library/i:latest: not found',
                ),
            ),
        ),
        r"Failed: 1 of 1 Pods: container c: ImagePullBackOff: .*not found",
        report_status("imageless", kubelet.ready),
        remedy="correct the image's name or tag",
    ),
    "no right to the image": ExplainedFate(
        "pod/unauthorized",
        steps(
            pod("unauthorized"),
            report_status(
                "unauthorized",
                lambda: kubelet.make_waiting_status("ImagePullBackOff", 'Back-off pulling image "i"'),
                ("Failed", 'Failed to pull image "i": failed to authorize: 401 Unauthorized'),
                of_container=True,
            ),
        ),
        r'Failed: container c: ImagePullBackOff: Failed to pull image "i": failed to authorize: 401',
        report_status("unauthorized", kubelet.ready),
        remedy="imagePullSecrets",
    ),
    "no such Secret": ExplainedFate(
        "deploy/secretless",
        steps(
            workload("Deployment", "secretless"),
            report_status(
                "secretless", lambda: kubelet.make_waiting_status("CreateContainerConfigError", 'secret "db" not found')
            ),
        ),
        r'Failed: 1 of 1 Pods: container c: CreateContainerConfigError: secret "db" not found\n',
        report_status("secretless", kubelet.ready),
        remedy=f"create Secret db in namespace {SPACE}",
    ),
    "no such volume": ExplainedFate(
        "pod/mountless",
        steps(
            pod("mountless"),
            report_status(
                "mountless",
                lambda: kubelet.make_waiting_status("ContainerCreating"),
                ("FailedMount", 'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'),
            ),
        ),
        r'Failed: FailedMount: MountVolume.SetUp failed for volume "settings" : configmap "settings" not found\n',
        report_status("mountless", kubelet.ready, _RUNS),
        remedy=f"create ConfigMap settings in namespace {SPACE}",
    ),
    "volume of another node": ExplainedFate(
        "sts/attached",
        steps(
            workload("StatefulSet", "attached", of={"serviceName": "attached"}),
            report_status(
                "attached",
                lambda: kubelet.make_waiting_status("ContainerCreating"),
                (
                    "FailedAttachVolume",
                    'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) attached-old',
                ),
            ),
        ),
        r'Failed: 1 of 1 Pods: FailedAttachVolume: Multi-Attach error for volume "pvc-1"',
        report_status(
            "attached",
            lambda: kubelet.make_waiting_status("ContainerCreating"),
            ("Pulled", "Container image is present"),
        ),
        r"Starting: 1 of 1 Pods: on \S+, not ready yet: c\n",
        remedy="end the Pod that uses the volume on another node",
    ),
    "no sandbox": ExplainedFate(
        "ds/sandboxless",
        steps(
            workload("DaemonSet", "sandboxless", nodeSelector={"fates/size": "small"}),
            report_status(
                "sandboxless",
                lambda: kubelet.make_waiting_status("ContainerCreating"),
                (
                    "FailedCreatePodSandBox",
                    'Failed to create pod sandbox: failed to setup network for sandbox "4a": no address',
                ),
            ),
        ),
        r"Failed: 1 of 1 Pods: FailedCreatePodSandBox: Failed to create pod sandbox: .*failed to setup network",
        report_status("sandboxless", kubelet.ready, _RUNS),
        remedy="repair the network plugin or the container runtime of node fates-small",
    ),
    "readiness probe": ExplainedFate(
        "deploy/unready",
        steps(
            workload("Deployment", "unready"),
            report_status(
                "unready",
                kubelet.unready,
                ("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"),
                of_container=True,
            ),
        ),
        r"Starting: 1 of 1 Pods: on \S+, not ready yet: container c: Readiness probe failed: HTTP probe failed "
        r"with statuscode: 503\n",
        report_status("unready", kubelet.ready),
        remedy="readinessProbe",
    ),
    "liveness probe": ExplainedFate(
        "pod/lifeless",
        steps(
            pod("lifeless"),
            report_status(
                "lifeless",
                lambda: kubelet.make_waiting_status(
                    "CrashLoopBackOff", "back-off 40s restarting failed container=c", 4, kubelet.make_last_state(137)
                ),
                ("Unhealthy", 'Liveness probe failed: Get "http://10.64.0.9/": connection refused'),
                of_container=True,
            ),
        ),
        r"Failed: container c: CrashLoopBackOff: exit code 137: 4 restarts: killed: container c: Liveness probe failed",
        report_status("lifeless", kubelet.ready),
        remedy="livenessProbe",
    ),
    "evicted": ExplainedFate(
        "pod/evicted",
        steps(
            pod("evicted"),
            report_status(
                "evicted",
                lambda: {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": "The node was low on resource: memory. ",
                    "containerStatuses": [],
                },
            ),
        ),
        r"Failed: Evicted: The node was low on resource: memory",
        steps(delete(f"{_CORE}/{SPACE}/pods/evicted?gracePeriodSeconds=0"), pod("evicted")),
    ),
    "preempted": ExplainedFate(
        "pod/low",
        steps(_priority(_LOW, 10), _priority(_HIGH, 100), pod("low", **_fills(_LOW))),
        RUNNING,
        pod("high", **_fills(_HIGH)),
        r"Failed: preempted by a Pod of higher priority at \S+: Preempted by pod \S+ on node fates-small; it does not",
    ),
    "nominated": ExplainedFate(
        "pod/nominated",
        steps(
            pod("nominated", **UNSEEN),
            patch(
                f"{_CORE}/{SPACE}/pods/nominated/status",
                {
                    "status": {
                        "nominatedNodeName": "fates-small",
                        "conditions": [
                            {
                                "type": "PodScheduled",
                                "status": "False",
                                "reason": "Unschedulable",
                                "message": "0/4 nodes are available: 4 Insufficient cpu.",
                            }
                        ],
                    }
                },
            ),
        ),
        r"Unschedulable: it is nominated for node fates-small, where Pods of lower priority are being ended for it\n",
        patch(f"{_CORE}/{SPACE}/pods/nominated/status", {"status": {"nominatedNodeName": None}}),
        r"Unschedulable: 4 of 4 nodes fit its terms and taints; the scheduler: 0/4 nodes are available: 4 Insuff",
    ),
    "node gone": ExplainedFate(
        "pod/homeless",
        steps(
            pod("homeless", nodeSelector={"fates/gone": "yes"}),
            report_status("homeless", kubelet.ready),
            delete(f"/api/v1/nodes/{_GONE}"),
        ),
        rf"Failed: node {_GONE} does not exist\n",
        _node_returns,
        remedy="wait until Kubernetes has deleted the Pod, then create it again",
    ),
    "finalizer": ExplainedFate(
        "pod/kept",
        steps(
            pod("kept", metadata={"finalizers": ["example.com/backup"]}, **UNSEEN),
            delete(f"{_CORE}/{SPACE}/pods/kept"),
        ),
        r"Terminating: since 20\S+Z: finalizer example.com/backup holds it\n",
        patch(f"{_CORE}/{SPACE}/pods/kept", {"metadata": {"finalizers": None}}),
        r"Admitted: ",
        remedy="""kubectl patch pod kept -n fates-shop --type=merge -p '{"metadata":{"finalizers":null}}'""",
    ),
    "another gate beside ours": ExplainedFate(
        "pod/second",
        steps(
            pod("first", QUEUED),
            pod("second", QUEUED, schedulingGates=[{"name": "example.com/budget"}]),
        ),
        r"WaitingForQuota: .*; example.com/budget holds it too\n",
        patch(f"{_CORE}/{QUEUED}/pods/second", {"spec": {"schedulingGates": [{"name": "podgate.io/quota"}]}}),
        r"WaitingForQuota: (?!.*example.com)",
        namespace=QUEUED,
        remedy="scheduling gate example.com/budget",
    ),
    "gate of another": ExplainedFate(
        "job/gated",
        workload("Job", "gated", schedulingGates=[{"name": "example.com/budget"}]),
        r"GatedByOthers: 1 of 1 Pods: example.com/budget: its owner must remove the gate\n",
        lambda shop: kubelet.patch(shop.plane, _only(shop, "gated"), {"spec": {"schedulingGates": None}}),
        r"(Succeeded|Starting|Running): 1 of 1 Pods: ",
    ),
    "paused before its first Pod": ExplainedFate(
        "deploy/paused",
        workload("Deployment", "paused", of={"paused": True}),
        r"Idle: paused \(spec.paused\): Pods of its present template are not created\n",
        _pause("paused", paused=False),
        remedy=f"kubectl rollout resume deployment/paused -n {SPACE}",
    ),
    "paused with a new template": ExplainedFate(
        "deploy/stale",
        steps(
            workload("Deployment", "stale"),
            report_status("stale", kubelet.ready),
            _pause("stale", paused=True),
            patch(
                f"{_APPS}/{SPACE}/deployments/stale",
                {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}},
            ),
        ),
        r"Idle: paused \(spec.paused\): Pods of its present template are not created; Pods: 1 Running\n",
        _pause("stale", paused=False),
    ),
    "scaled to 0": ExplainedFate(
        "deploy/none",
        workload("Deployment", "none", of={"replicas": 0}),
        r"Idle: it wants no Pods: spec.replicas is 0\n",
        _scale("none", 1),
        remedy=f"kubectl scale deployment/none -n {SPACE} --replicas=N",
    ),
    "no node for a DaemonSet": ExplainedFate(
        "ds/nowhere",
        workload("DaemonSet", "nowhere", nodeSelector={"fates/disk": "optical"}),
        r"Idle: it wants no Pods: no node fits its Pods\n",
        patch("/api/v1/nodes/node-a1", {"metadata": {"labels": {"fates/disk": "optical"}}}),
    ),
    "no service account": ExplainedFate(
        "deploy/robotic",
        workload("Deployment", "robotic", serviceAccountName="robot"),
        r'Denied: 1 of 1 Pods: not by Podgate: .*serviceaccount "robot" not found',
        _CREATE_ACCOUNT,
        remedy=f"kubectl create serviceaccount robot -n {SPACE}",
    ),
    "ResourceQuota": ExplainedFate(
        "deploy/many",
        steps(create(f"{_CORE}/{SMALL}/resourcequotas", _quota("0")), workload("Deployment", "many", SMALL)),
        r"Denied: 1 of 1 Pods: not by Podgate: .*exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0",
        patch(f"{_CORE}/{SMALL}/resourcequotas/few", {"spec": {"hard": {"pods": "5"}}}),
        namespace=SMALL,
        remedy=f"raise ResourceQuota few in namespace {SMALL}",
    ),
    "PodSecurity": ExplainedFate(
        "deploy/rooted",
        steps(_enforce("restricted"), workload("Deployment", "rooted", SECURE)),
        r'Denied: 1 of 1 Pods: not by Podgate: .*violates PodSecurity "restricted:latest"',
        _enforce("privileged"),
        namespace=SECURE,
        remedy=f"pod-security.kubernetes.io/enforce of namespace {SECURE}",
    ),
    "ValidatingAdmissionPolicy": ExplainedFate(
        "deploy/ownerless",
        steps(_GUARD, _GUARDED, _wait_until_denied, workload("Deployment", "ownerless", GUARDED)),
        r"Denied: 1 of 1 Pods: not by Podgate: .*ValidatingAdmissionPolicy 'fates-guard' .*a Pod needs an owner",
        delete(f"{_VALIDATING}ybindings/fates-guard"),
        namespace=GUARDED,
        remedy="change the Pod template as ValidatingAdmissionPolicy fates-guard asks",
    ),
    "PriorityClass of the policy": ExplainedFate(
        "deploy/golden",
        workload("Deployment", "golden", CLASSY),
        r"Denied: 1 of 1 Pods: PriorityClass fates-gold does not exist, and service classy writes it "
        r"\(placement.priorityClassName\)",
        _priority("fates-gold", 1000),
        namespace=CLASSY,
        remedy="create PriorityClass fates-gold, or change placement.priorityClassName of service classy",
    ),
    "suspended Job": ExplainedFate(
        "job/suspended",
        workload("Job", "suspended", of={"suspend": True}),
        r"Idle: suspended \(spec.suspend\): no Pods run\n",
        patch(f"{_BATCH}/{SPACE}/jobs/suspended", {"spec": {"suspend": False}}),
        r"(Succeeded|Starting|Running): 1 of 1 Pods: ",
        remedy=f"""kubectl patch job/suspended -n {SPACE} --type=merge -p '{{"spec":{{"suspend":false}}}}'""",
    ),
    "Job over its deadline": ExplainedFate(
        "job/late",
        workload("Job", "late", of={"activeDeadlineSeconds": 1}, **UNSEEN),
        r"Failed: DeadlineExceeded: Job was active longer than specified deadline\n",
        steps(
            delete(f"{_BATCH}/{SPACE}/jobs/late?propagationPolicy=Background"),
            workload("Job", "late"),
        ),
        r"(Succeeded|Starting|Running): 1 of 1 Pods: ",
    ),
    "suspended CronJob": ExplainedFate(
        "cj/held",
        workload("CronJob", "held", of={"suspend": True}),
        r"Idle: suspended \(spec.suspend\): no new Jobs are created\n",
        patch(f"{_BATCH}/{SPACE}/cronjobs/held", {"spec": {"suspend": False}}),
        r"Idle: not due: its schedule is '0 0 29 2 \*'; it was due never since it was created at 20",
    ),
    "CronJob with an active Job": ExplainedFate(
        "cj/minutely",
        steps(workload("CronJob", "minutely", of={"schedule": "* * * * *"}, **UNSEEN), _due_now),
        r"(Starting: 1 of 1 Pods: waits for|Unschedulable: \d of \d Pods: no scheduler has looked at it: is) ",
        steps(
            patch(f"{_BATCH}/{SPACE}/cronjobs/minutely", {"spec": {"suspend": True}}),
            delete(f"{_BATCH}/{SPACE}/jobs?propagationPolicy=Background"),
        ),
        r"Idle: suspended \(spec.suspend\): no new Jobs are created",
    ),
    "namespace that ends": ExplainedFate(
        "sts/orphan",
        steps(
            workload("StatefulSet", "orphan", ENDING, of={"serviceName": "orphan", "replicas": 0}),
            patch(f"{_APPS}/{ENDING}/statefulsets/orphan", {"metadata": {"finalizers": ["example.com/backup"]}}),
            delete(f"/api/v1/namespaces/{ENDING}"),
        ),
        rf"Terminating: namespace {ENDING} has been terminating since 20\S+Z, so no Pod can be created; .*"
        r"example.com/backup",
        patch(f"{_APPS}/{ENDING}/statefulsets/orphan", {"metadata": {"finalizers": None}}),
        r"$",
        namespace=ENDING,
        remedy=f"wait until kubectl get namespace {ENDING} finds nothing",
    ),
    "node not ready": ExplainedFate(
        "pod/silent",
        steps(pod("silent"), report_status("silent", kubelet.ready), _node_falls_silent),
        r"Failed: node \S+ is not ready: NodeStatusUnknown: Kubelet stopped posting node status",
        _node_speaks,
        remedy="repair the kubelet of node",
    ),
}
"""The last one stops kwok, which keeps the nodes Ready."""


def _only(shop: Installation, app: str) -> str:
    """Return the path of the only Pod with a label `app`, wherever it is."""
    pods = f"{_CORE}/{SPACE}/pods"
    [found] = shop.plane.api.get(f"{pods}?labelSelector=app%3D{app}")["items"]
    return f"{pods}/{found['metadata']['name']}"


def explain(shop: Installation, fate: ExplainedFate) -> Done:
    where = ("--kubeconfig", shop.plane.kubeconfig, "--server", f"http://{shop.servers[0].decisions}")
    return podgate("explain", fate.asked, "-n", fate.namespace, *where)


def wait_for_page(shop: Installation, fate: ExplainedFate, expected: str) -> str:
    """Wait until the first line matches, and return the page."""
    seen: list[Done] = []

    def matches() -> bool:
        REPORTED.get(fate.asked.partition("/")[2], lambda: None)()
        seen.append(explain(shop, fate))
        return re.match(expected, seen[-1].out) is not None

    try:
        shop.plane.wait(matches, f"{fate.asked} to be explained", shop.servers[0].name)
    except Exception as error:
        raise AssertionError(f"{seen[-1].out}{seen[-1].err}\ndoes not match {expected}") from error
    return seen[-1].out


@pytest.mark.parametrize("name", FATES)
def test_the_first_line_has_the_cause_until_it_ends(shop: Installation, name: str) -> None:
    fate = FATES[name]
    fate.make(shop)
    page = wait_for_page(shop, fate, fate.first)
    assert "cannot read" not in page
    assert fate.remedy in " ".join(page.split()), page
    fate.change(shop)
    after = wait_for_page(shop, fate, fate.then)
    assert not re.match(fate.first, after), after


def test_there_are_thirty_fates_of_every_kind() -> None:
    kinds = {fate.asked.partition("/")[0] for fate in FATES.values()}
    assert len(FATES) >= 30
    assert kinds == {"deploy", "job", "cj", "sts", "ds", "pod"}
