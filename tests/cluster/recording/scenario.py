"""The recorded scenario: one step for each kind of review."""

from dataclasses import dataclass

from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import actions, objects
from tests.cluster.recording.actions import Act, apply_policy, create, kubectl, patch
from tests.cluster.recording.environment import CAPACITY, KUBELET, SPACE, Environment, create_environment
from tests.cluster.recording.objects import pod, workload
from tests.cluster.recording.webhooks import CONFIGURATIONS, HALVES, POLICY_PATH, configurations, podgate_answer
from tests.cluster.recording_webhook import Call, Recorder
from tests.harness.server_process import Files
from webhook.core.document.configmap import NAME, NAMESPACE


@dataclass(frozen=True)
class Step:
    """One action, and the first review on each of `paths` of the object whose name starts with `subject`."""

    name: str
    subject: str
    act: Act
    operation: str = "CREATE"
    sub_resource: str = ""
    paths: tuple[str, ...] = HALVES

    def record(self, environment: Environment, recorder: Recorder) -> dict[str, Call]:
        """Run the step, again where the Pod garbage collector was faster; return the calls by their paths."""
        while True:
            recorder.take_calls()
            self.act(environment)
            found = environment.plane.wait(lambda: self._calls(recorder), f"reviews of {self.name}")
            if not any(_is_of_collected_pod(call) for call in found.values()):
                return dict(found)

    def _calls(self, recorder: Recorder) -> dict[str, Call]:
        """Return the first call on each of the paths; nothing before there is one on all of them."""
        calls = {call.path: call for call in reversed(recorder.calls) if self._fits(call)}
        return calls if len(calls) == len(self.paths) else {}

    def _fits(self, call: Call) -> bool:
        matches = call.path in self.paths and call.name.startswith(self.subject)
        return matches and (call.operation, call.sub_resource) == (self.operation, self.sub_resource)


def _is_of_collected_pod(call: Call) -> bool:
    """Whether the Pod had failed: the collector does that, every 20 s, to terminating Pods without a node."""
    status = (call.request.get("object") or {}).get("status") or {}
    return bool(status.get("phase") == "Failed")


def make_creation(name: str, subject: str, act: Act) -> Step:
    return Step(f"create_{name}", subject, act)


def make_change(name: str, act: Act, operation: str = "UPDATE", sub_resource: str = "") -> Step:
    return Step(name, "running", act, operation, sub_resource)


def make_policy_change(name: str, act: Act, operation: str = "UPDATE") -> Step:
    return Step(name, NAME, act, operation, paths=(POLICY_PATH,))


_UNGATE = [{"op": "remove", "path": "/spec/schedulingGates"}]

STEPS = (
    make_creation("named", "named", create(pod("named"))),
    make_creation("generate_name", "generated-", create(pod("generated-"))),
    make_creation("dry_run", "dry", create(pod("dry"), "--dry-run=server")),
    make_creation("by_replica_set", "deployment-", create(workload("apps/v1", "Deployment"))),
    make_creation("by_daemon_set", "daemonset-", create(workload("apps/v1", "DaemonSet", **objects.ON_OUR_NODE))),
    make_creation("by_job", "job-", create(workload("batch/v1", "Job", selects=False, restartPolicy="Never"))),
    make_creation("mirror_pod_by_its_kubelet", "mirror", actions.create_mirror),
    make_creation("with_affinity_of_its_own", "choosy", create(pod("choosy", **objects.WITH_AFFINITY))),
    make_creation("conflict_denied", "conflict", create(pod("conflict", **objects.CONFLICTING), refused=True)),
    make_creation("conflict_overridden", "ledger", create(pod("ledger", app="ledger", **objects.CONFLICTING))),
    make_creation("unmatched_denied", "cache", create(pod("cache", app="cache"), refused=True)),
    make_creation("larger_than_the_quota", "large", create(pod("large", cpu="3"), refused=True)),
    make_creation("with_forged_label_and_hash", "forged-fields", create(objects.FORGED_FIELDS)),
    make_creation("daemon_set_pod_forged", "forged-owner", create(objects.FORGED_OWNER)),
    make_creation("mirror_pod_forged", "forged-mirror", create(objects.FORGED_MIRROR, refused=True)),
    Step("update_gated_tightened", "gated", actions.tighten, "UPDATE"),
    Step("update_gate_removed", "gated", patch("gated", _UNGATE, "--type=json", user=CAPACITY), "UPDATE"),
    Step("update_while_being_deleted", "held", actions.relabel_terminating, "UPDATE"),
    Step("release_while_being_deleted", "held", actions.release_terminating, "UPDATE"),
    Step("delete", "deleted", actions.delete, "DELETE"),
    make_change("binding", actions.run, "CREATE", "binding"),
    make_change("update_of_a_label", kubectl("label", "pod", "running", "version=2")),
    make_change(
        "update_of_the_label",
        kubectl("label", "pod", "running", "podgate.io/service=ledger", "--overwrite", refused=True),
    ),
    make_change(
        "update_without_the_annotation",
        kubectl("annotate", "pod", "running", "podgate.io/policy-hash-", refused=True),
    ),
    make_change(
        "update_of_status",
        patch("running", objects.CHECKED, "--subresource=status", user=KUBELET),
        sub_resource="status",
    ),
    make_change(
        "ephemeral_container",
        patch("running", objects.DEBUGGED, "--subresource=ephemeralcontainers"),
        sub_resource="ephemeralcontainers",
    ),
    make_change(
        "resize_above_the_quota",
        patch("running", objects.make_resize("3"), "--subresource=resize", refused=True),
        sub_resource="resize",
    ),
    make_change(
        "resize_larger",
        patch("running", objects.make_resize("200m"), "--subresource=resize"),
        sub_resource="resize",
    ),
    # From here on kwok performs the resize, so the remaining reviews must not contain the Pod.
    # The node has no kubelet, but the API server calls the webhook before it connects to one.
    make_change("exec", kubectl("exec", "running", "--", "true", refused=True), "CONNECT", "exec"),
    make_change("eviction", actions.evict, "CREATE", "eviction"),
    make_policy_change("created", apply_policy(objects.POLICY), "CREATE"),
    make_policy_change("changed", apply_policy(objects.CHANGED_POLICY)),
    make_policy_change("broken", apply_policy(objects.BROKEN_POLICY, refused=True)),
    make_policy_change("labelled", actions.label_policy),
)


def record(plane: ControlPlane, files: Files, policy: bytes) -> dict[str, dict[str, Call]]:
    """Run all steps, with Pods rewritten by this policy; return the calls by step and path."""
    with create_environment(plane) as environment, Recorder(files.pki.paths, podgate_answer(policy)) as recorder:
        try:
            plane.apply(*configurations(recorder.address, files.folder / "ca.crt", SPACE))
            all_paths = {*HALVES, POLICY_PATH}
            plane.wait(
                lambda: _list_called_paths(plane, recorder) == all_paths, "the recorder to be called", "kube-apiserver"
            )
            recorded = {step.name: step.record(environment, recorder) for step in STEPS}
        finally:
            for kind in CONFIGURATIONS:
                plane.kubectl("delete", kind, "recording", "--ignore-not-found")
            plane.wait(
                lambda: not _list_called_paths(plane, recorder),
                "the webhook configurations to be removed",
                "kube-apiserver",
            )
            plane.kubectl("delete", "configmap", NAME, "-n", NAMESPACE, "--ignore-not-found")
    return recorded


def _list_called_paths(plane: ControlPlane, recorder: Recorder) -> set[str]:
    """Return the paths that the API server calls for dry runs of a Pod and a policy."""
    recorder.take_calls()
    for collection, document in (
        (f"{SPACE}/pods", pod("probe")),
        (f"{NAMESPACE}/configmaps", objects.policy(objects.POLICY)),
    ):
        plane.api.request("POST", f"/api/v1/namespaces/{collection}?dryRun=All", document)
    return {call.path for call in recorder.take_calls() if call.request["dryRun"]}
