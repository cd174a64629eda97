"""Installation plan: the objects in order, obstacles to it, and the rollout of its Deployments."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from webhook.core.document import DocumentError, Purpose, configmap, load
from webhook.core.installation.live_ways import LiveObjects
from webhook.core.installation.objects import Json, ObjectReference, sort_objects
from webhook.core.installation.ownership import find_other_tool, is_installed, list_managers
from webhook.core.installation.record import RECORD, SCHEDULER, InstallationRecord
from webhook.core.installation.ways import CERT_MANAGER
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.rollout.status import ROLLOUT_NAME


def is_rolled_out(deployment: Json) -> bool:
    """Return whether all replicas have the current template, and are available."""
    status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    counts = (status.get(key, 0) for key in ("updatedReplicas", "replicas", "availableReplicas"))
    return is_observed and all(count == replicas for count in counts)


def describe_rollout(deployment: Json, pods: Iterable[Json]) -> str:
    """Return why a rollout is not complete."""
    status = deployment.get("status") or {}
    counted = f"{status.get('availableReplicas', 0)} of {deployment['spec'].get('replicas', 1)} replicas are available"
    reasons = dict.fromkeys([*_list_failures(status), *(reason for pod in pods for reason in _list_waits(pod))])
    return "; ".join([counted, *reasons])


def _list_failures(status: Json) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield str(condition["message"])


def _list_waits(pod: Json) -> Iterator[str]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield str(condition.get("message", "not scheduled"))
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            yield ": ".join(filter(None, (waiting.get("reason", ""), waiting.get("message", ""))))


POLICY = ObjectReference("v1", "ConfigMap", configmap.NAME, configmap.NAMESPACE)
NAMESPACE = ObjectReference("v1", "Namespace", configmap.NAMESPACE)
DEPLOYMENT, CONTROLLER, SCHEDULING = (
    ObjectReference("apps/v1", "Deployment", name, configmap.NAMESPACE)
    for name in ("podgate", "podgate-controller", SCHEDULER)
)
CERTIFICATE = ObjectReference("v1", "Secret", "podgate-tls", configmap.NAMESPACE)
WEBHOOKS = ObjectReference("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "podgate")
KEPT = frozenset({configmap.NAME, "podgate-identities"})
"""ConfigMaps that are created once, and then belong to the user."""
_OUTSIDE = frozenset(
    {
        *("Namespace", "CustomResourceDefinition", "ServiceAccount", "ConfigMap"),
        *("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
"""Kinds of the objects that a server outside the cluster needs."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A state in which an installation must not begin: object, field and value, and the remedy."""

    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """The objects of an installation without its webhooks, in order, and its record."""

    record: InstallationRecord
    documents: tuple[Json, ...]
    policy: str
    """The policy to install if the cluster has none."""
    is_policy_given: bool = field(default=False)
    """The policy is the user's own, not the example."""
    image: str = field(default="")
    """The image of servers if the user names none."""

    @property
    def objects(self) -> list[Json]:
        """Return all objects in order."""
        return sort_objects([*self.documents, self.record.build_config_map(), build_policy_config_map(self.policy)])

    def find_obstacle(self, live: "LiveState", *, is_forced: bool = False) -> Obstacle | None:
        """Return why the installation must not begin in this cluster; `is_forced`: take over others' fields."""
        return (
            (find_deletion(NAMESPACE, live.namespace) if live.namespace is not None else None)
            or _check_foreign(live)
            or self._check_way(live, is_forced=is_forced)
            or self._check_policy(live)
        )

    def _check_way(self, live: "LiveState", *, is_forced: bool) -> Obstacle | None:
        """Return an obstacle if Podgate is installed in another way, or by hand."""
        found = live.record or live.objects.find_way()
        if found is None or self._replaces_nothing(live):
            return None
        by_hand = live.record is None and not any(is_installed(document) for _, document in live.shown)
        force = ("--force-conflicts",) if by_hand else ()
        again = live.objects.format_command(found, self.image, *force)
        hand = f": installed by hand (there is no {RECORD})"
        conflict = found.find_conflict(self.record)
        if conflict is not None:
            key, present, wanted = conflict
            place = (
                f"{RECORD}: data.{key}"
                if live.record is not None
                else f"{live.shown[0][0]}{hand if by_hand else ''}: {key}"
            )
            kept = "take it over as it is" if by_hand else "keep this way"
            return Obstacle(
                f"{place}: {present!r}: Podgate is installed in another way than {wanted!r}",
                f"to {kept}: {again}; to change the way, remove it first: podgate uninstall --keep-policy",
            )
        if not by_hand or is_forced or (live.objects.server is None and live.objects.webhooks is None):
            return None
        reference, document = live.shown[0]
        owners = ", ".join(list_managers(document)) or "nobody"
        return Obstacle(f"{reference}{hand}, and its fields are of {owners}", f"to take it over: {again}")

    def _replaces_nothing(self, live: "LiveState") -> bool:
        """Return whether only certificates exist, which a server outside the cluster does not use."""
        objects = live.objects
        return (
            bool(self.record.server_url) and live.record is None and objects.server is None and objects.webhooks is None
        )

    def _check_policy(self, live: "LiveState") -> Obstacle | None:
        if live.policy is None or not self.is_policy_given or live.policy == self.policy:
            return None
        return Obstacle(
            f"configmap/{configmap.NAME}: data[{configmap.KEY}]: the live policy differs from --policy",
            "leave --policy out; a live policy is never replaced by install (docs/policy.md tells how to change it)",
        )


@dataclass(frozen=True, slots=True)
class LiveState:
    """The objects of Podgate in a cluster."""

    namespace: Json | None
    record: InstallationRecord | None
    policy: str | None
    objects: LiveObjects = field(default_factory=LiveObjects)

    @property
    def shown(self) -> list[tuple[ObjectReference, Json]]:
        """The objects by which an installation without a record is recognized, the most important first."""
        found = (
            (DEPLOYMENT, self.objects.server),
            (WEBHOOKS, self.objects.webhooks),
            (CERTIFICATE, self.objects.certificate),
        )
        return [(reference, document) for reference, document in found if document is not None]


def list_written_later(record: InstallationRecord, policy: Policy) -> list[ObjectReference]:
    """Return the objects that the servers of an installation, or cert-manager, create themselves."""
    lease = ObjectReference("coordination.k8s.io/v1", "Lease", "podgate-leader", configmap.NAMESPACE)
    found = [lease, ObjectReference("v1", "ConfigMap", configmap.LAST_GOOD, configmap.NAMESPACE)]
    found += [ObjectReference("podgate.io/v1alpha1", "ServiceStatus", service.name) for service in policy.services]
    found += [
        ObjectReference("podgate.io/v1alpha1", "PolicyRollout", ROLLOUT_NAME),
        ObjectReference("v1", "ConfigMap", configmap.ROLLOUT_STATE, configmap.NAMESPACE),
    ]
    if record.scheduler:
        found.append(ObjectReference(lease.api_version, "Lease", SCHEDULER, configmap.NAMESPACE))
    if record.certificates == CERT_MANAGER:
        names = ("podgate-ca", "podgate-tls", "podgate-apiserver")
        found += [ObjectReference("v1", "Secret", name, configmap.NAMESPACE) for name in names]
    return found


def select_outside(documents: list[Json]) -> tuple[Json, ...]:
    """Return the objects that a server outside the cluster needs."""
    return tuple(document for document in documents if document["kind"] in _OUTSIDE)


def build_policy_config_map(text: str) -> Json:
    metadata = {
        "name": configmap.NAME,
        "namespace": configmap.NAMESPACE,
        "labels": {"app.kubernetes.io/name": "podgate"},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {configmap.KEY: text}}


def load_policy(text: str, place: str) -> LoadedPolicy | Obstacle:
    """Return the policy, or an obstacle with its mistakes."""
    try:
        return load(text.encode(), Purpose.SERVE).policy
    except DocumentError as error:
        mistakes = "\n".join(f"{place}:{problem}" for problem in error.problems)
        return Obstacle(
            f"{place}: not a valid policy:\n{mistakes}", "correct it, and check it with podgate policy lint"
        )


def find_deletion(reference: ObjectReference, document: Json) -> Obstacle | None:
    """Return an obstacle if an object is being deleted: what is applied to it would be gone soon."""
    since = document["metadata"].get("deletionTimestamp")
    if since is None:
        return None
    message = f"{reference}: metadata.deletionTimestamp: {since}: it is being deleted"
    return Obstacle(message, f"wait until it is gone: kubectl wait --for=delete {reference.operand} --timeout=5m")


def _check_foreign(live: LiveState) -> Obstacle | None:
    """Return an obstacle if another tool manages an object of the installation, which it would write again."""
    for reference, document in live.shown:
        mark = find_other_tool(document)
        if mark is not None:
            place, value, tool = mark
            return Obstacle(
                f"{reference}: metadata.{place}: {value!r}: another tool has installed it",
                f"change it with {tool}, or remove it with {tool} first, and run this command again",
            )
    return None
