"""Plan of an installation: its objects in order, and the state of a cluster in which it must not begin."""

from dataclasses import dataclass, field

from webhook.core.document import DocumentError, Purpose, configmap, load
from webhook.core.installation.objects import Json, ObjectReference, ordered
from webhook.core.installation.record import InstallationRecord
from webhook.core.policy.model import LoadedPolicy

POLICY = ObjectReference("v1", "ConfigMap", configmap.NAME, configmap.NAMESPACE)
NAMESPACE = ObjectReference("v1", "Namespace", configmap.NAMESPACE)
DEPLOYMENT = ObjectReference("apps/v1", "Deployment", "podgate", configmap.NAMESPACE)
KEPT = frozenset({configmap.NAME, "podgate-identities"})
"""ConfigMaps that are created once, and then belong to their users."""
_OUTSIDE = frozenset(
    {
        *("Namespace", "CustomResourceDefinition", "ServiceAccount", "ConfigMap"),
        *("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
    }
)
"""Kinds of the objects that a server outside the cluster needs."""
_MANAGED_BY = "app.kubernetes.io/managed-by"


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
    """The document to begin with, if the cluster has none."""
    is_policy_given: bool = field(default=False)
    """It is the user's own, not the example."""

    @property
    def objects(self) -> list[Json]:
        """Return all objects in order."""
        return ordered([*self.documents, self.record.config_map(), policy_config_map(self.policy)])

    def obstacle(self, live: "LiveState") -> Obstacle | None:
        """Return why the installation must not begin in this cluster."""
        return _terminating(live) or _foreign(live) or self._changed(live) or self._inside(live) or self._policy(live)

    def _changed(self, live: "LiveState") -> Obstacle | None:
        conflict = live.record.conflict(self.record) if live.record is not None else None
        if conflict is None:
            return None
        key, present, wanted = conflict
        return Obstacle(
            f"configmap/{configmap.INSTALLATION}: data.{key}: {present!r}:"
            f" Podgate is installed in another way than {wanted!r}",
            "repeat the options of that installation, or remove it first: podgate uninstall",
        )

    def _inside(self, live: "LiveState") -> Obstacle | None:
        if live.record is not None or live.deployment is None or not self.record.server_url:
            return None
        message = f"{DEPLOYMENT}: its servers run in the cluster, and the webhooks would call one outside"
        return Obstacle(message, "leave --server-url out, or remove them first: podgate uninstall")

    def _policy(self, live: "LiveState") -> Obstacle | None:
        if live.policy is None or not self.is_policy_given or live.policy == self.policy:
            return None
        return Obstacle(
            f"configmap/{configmap.NAME}: data[{configmap.KEY}]: the live policy differs from --policy",
            "leave --policy out; a live policy is never replaced by install (docs/policy.md tells how to change it)",
        )


@dataclass(frozen=True, slots=True)
class LiveState:
    """What a cluster has of Podgate."""

    namespace: Json | None
    record: InstallationRecord | None
    policy: str | None
    deployment: Json | None


def outside(documents: list[Json]) -> tuple[Json, ...]:
    """Return the objects that a server outside the cluster needs."""
    return tuple(one for one in documents if one["kind"] in _OUTSIDE)


def policy_config_map(text: str) -> Json:
    metadata = {
        "name": configmap.NAME,
        "namespace": configmap.NAMESPACE,
        "labels": {"app.kubernetes.io/name": "podgate"},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {configmap.KEY: text}}


def loaded(text: str, place: str) -> LoadedPolicy | Obstacle:
    """Return a policy, or its mistakes."""
    try:
        return load(text.encode(), Purpose.SERVE).policy
    except DocumentError as error:
        mistakes = "\n".join(f"{place}:{problem}" for problem in error.problems)
        return Obstacle(
            f"{place}: not a valid policy:\n{mistakes}", "correct it, and check it with podgate policy lint"
        )


def _terminating(live: LiveState) -> Obstacle | None:
    if live.namespace is None or "deletionTimestamp" not in live.namespace["metadata"]:
        return None
    since = live.namespace["metadata"]["deletionTimestamp"]
    message = f"{NAMESPACE}: metadata.deletionTimestamp: {since}: it is being deleted"
    return Obstacle(message, f"wait until it is gone: kubectl wait --for=delete {NAMESPACE} --timeout=5m")


def _foreign(live: LiveState) -> Obstacle | None:
    """Return an obstacle if another tool manages the server's Deployment."""
    if live.deployment is None:
        return None
    labels = live.deployment["metadata"].get("labels") or {}
    tool = labels.get(_MANAGED_BY)
    if tool in {None, "podgate"}:
        return None
    return Obstacle(
        f"{DEPLOYMENT}: metadata.labels[{_MANAGED_BY}]: {tool!r}: another tool has installed it",
        f"change it with {tool}, or remove it with {tool} first",
    )
