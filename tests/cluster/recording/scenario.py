"""The recorded scenario: a step for each shape of a review."""

from dataclasses import dataclass

from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import actions, objects
from tests.cluster.recording.actions import Act, apply_policy, create, kubectl, patch
from tests.cluster.recording.environment import CAPACITY, KUBELET, SPACE, Scene, staged
from tests.cluster.recording.objects import pod, workload
from tests.cluster.recording.webhooks import CONFIGURATIONS, HALVES, POLICY_PATH, by_podgate, configurations
from tests.cluster.recording_webhook import Call, Recorder
from tests.harness.server_process import Files
from webhook.core.document.configmap import NAME, NAMESPACE


@dataclass(frozen=True)
class Step:
    """Do something, and take the first review of each of `paths` about what has this name, or begins with it."""

    name: str
    subject: str
    act: Act
    operation: str = "CREATE"
    sub_resource: str = ""
    paths: tuple[str, ...] = HALVES

    def recorded(self, scene: Scene, recorder: Recorder) -> dict[str, Call]:
        """Take the step; return the calls by their paths."""
        recorder.taken()
        self.act(scene)

        def found() -> dict[str, Call]:
            # Backwards: what is said last, stays.
            return {call.path: call for call in reversed(recorder.calls) if self._fits(call)}

        return dict(scene.plane.wait(lambda: len(found()) == len(self.paths) and found(), f"reviews of {self.name}"))

    def _fits(self, call: Call) -> bool:
        wanted = call.path in self.paths and call.name.startswith(self.subject)
        return wanted and (call.operation, call.sub_resource) == (self.operation, self.sub_resource)


def of_new(name: str, subject: str, act: Act) -> Step:
    return Step(f"create_{name}", subject, act)


def of_running(name: str, act: Act, operation: str = "UPDATE", sub_resource: str = "") -> Step:
    return Step(name, "running", act, operation, sub_resource)


def of_policy(name: str, act: Act, operation: str = "UPDATE") -> Step:
    return Step(name, NAME, act, operation, paths=(POLICY_PATH,))


_UNGATE = [{"op": "remove", "path": "/spec/schedulingGates"}]

STEPS = (
    of_new("named", "named", create(pod("named"))),
    of_new("generate_name", "generated-", create(pod("generated-"))),
    of_new("dry_run", "dry", create(pod("dry"), "--dry-run=server")),
    of_new("by_replica_set", "deployment-", create(workload("apps/v1", "Deployment"))),
    of_new("by_daemon_set", "daemonset-", create(workload("apps/v1", "DaemonSet", **objects.ON_OUR_NODE))),
    of_new("by_job", "job-", create(workload("batch/v1", "Job", selects=False, restartPolicy="Never"))),
    of_new("mirror_pod_by_its_kubelet", "mirror", actions.create_mirror),
    of_new("with_affinity_of_its_own", "choosy", create(pod("choosy", **objects.CHOOSY))),
    of_new("conflict_denied", "conflict", create(pod("conflict", **objects.CONFLICTING), refused=True)),
    of_new("conflict_overridden", "ledger", create(pod("ledger", app="ledger", **objects.CONFLICTING))),
    of_new("unmatched_denied", "cache", create(pod("cache", app="cache"), refused=True)),
    of_new("larger_than_the_quota", "large", create(pod("large", cpu="3"), refused=True)),
    of_new("with_forged_label_and_hash", "forged-fields", create(objects.FORGED_FIELDS)),
    of_new("daemon_set_pod_forged", "forged-owner", create(objects.FORGED_OWNER)),
    of_new("mirror_pod_forged", "forged-mirror", create(objects.FORGED_MIRROR, refused=True)),
    Step("update_gated_tightened", "gated", actions.tighten, "UPDATE"),
    Step("update_gate_removed", "gated", patch("gated", _UNGATE, "--type=json", user=CAPACITY), "UPDATE"),
    Step("update_while_being_deleted", "held", actions.let_go, "UPDATE"),
    Step("delete", "deleted", actions.delete, "DELETE"),
    of_running("binding", actions.run, "CREATE", "binding"),
    of_running("update_of_a_label", kubectl("label", "pod", "running", "version=2")),
    of_running(
        "update_of_the_label",
        kubectl("label", "pod", "running", "podgate.io/service=ledger", "--overwrite", refused=True),
    ),
    of_running(
        "update_without_the_annotation",
        kubectl("annotate", "pod", "running", "podgate.io/policy-hash-", refused=True),
    ),
    of_running(
        "update_of_status",
        patch("running", objects.CHECKED, "--subresource=status", user=KUBELET),
        sub_resource="status",
    ),
    of_running(
        "ephemeral_container",
        patch("running", objects.DEBUGGED, "--subresource=ephemeralcontainers"),
        sub_resource="ephemeralcontainers",
    ),
    of_running(
        "resize_above_the_quota",
        patch("running", objects.asking_for("3"), "--subresource=resize", refused=True),
        sub_resource="resize",
    ),
    of_running(
        "resize_larger",
        patch("running", objects.asking_for("200m"), "--subresource=resize"),
        sub_resource="resize",
    ),
    # From here on kwok carries out the resize: what follows must not show the Pod.
    # No kubelet is behind the node: the API server asks before it finds out.
    of_running("exec", kubectl("exec", "running", "--", "true", refused=True), "CONNECT", "exec"),
    of_running("eviction", actions.evict, "CREATE", "eviction"),
    of_policy("created", apply_policy(objects.POLICY), "CREATE"),
    of_policy("changed", apply_policy(objects.CHANGED_POLICY)),
    of_policy("broken", apply_policy(objects.BROKEN_POLICY, refused=True)),
    of_policy("labelled", actions.label_policy),
)


def record(plane: ControlPlane, files: Files, policy: bytes) -> dict[str, dict[str, Call]]:
    """Take all steps, with Pods rewritten by this policy; return the calls by step and path."""
    with staged(plane) as scene, Recorder(files.pki.paths, by_podgate(policy)) as recorder:
        try:
            plane.apply(*configurations(recorder.address, files.folder / "ca.crt", SPACE))
            everything = {*HALVES, POLICY_PATH}
            plane.wait(lambda: _asked(plane, recorder) == everything, "the recorder to be asked", "kube-apiserver")
            found = {step.name: step.recorded(scene, recorder) for step in STEPS}
        finally:
            for kind in CONFIGURATIONS:
                plane.kubectl("delete", kind, "recording", "--ignore-not-found")
            plane.wait(lambda: not _asked(plane, recorder), "the recorder to be asked no more", "kube-apiserver")
            plane.kubectl("delete", "configmap", NAME, "-n", NAMESPACE, "--ignore-not-found")
    return found


def _asked(plane: ControlPlane, recorder: Recorder) -> set[str]:
    """Return what the API server asks about a Pod and a policy that it is not to keep."""
    recorder.taken()
    for where, document in (f"{SPACE}/pods", pod("probe")), (f"{NAMESPACE}/configmaps", objects.policy(objects.POLICY)):
        plane.api.request("POST", f"/api/v1/namespaces/{where}?dryRun=All", document)
    return {call.path for call in recorder.taken() if call.request["dryRun"]}
