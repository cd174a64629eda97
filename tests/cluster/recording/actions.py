"""User actions in the scenario of the recordings, each as a function of the environment."""

import json
from collections.abc import Callable
from typing import Any

from tests.cluster.recording.environment import ADMIN, ALICE, KUBELET, NODE, SPACE, Environment
from tests.cluster.recording.objects import GATED, HOLD, MIRRORED, pod, policy, set_metadata
from webhook.core.document.configmap import NAME, NAMESPACE

_RELEASED = {"metadata": {"finalizers": None}}

Act = Callable[[Environment], object]


def kubectl(*arguments: str, user: str = ALICE, refused: bool = False) -> Act:
    return lambda scene: scene.kubectl(user, "-n", SPACE, *arguments, refused=refused)


def create(document: dict[str, Any], *arguments: str, user: str = ALICE, refused: bool = False) -> Act:
    return lambda scene: scene.kubectl(user, "create", "-f", "-", *arguments, document=document, refused=refused)


def patch(name: str, changes: Any, *arguments: str, user: str = ALICE, refused: bool = False) -> Act:
    return kubectl("patch", "pod", name, f"--patch={json.dumps(changes)}", *arguments, user=user, refused=refused)


def apply_policy(text: str, *, refused: bool = False) -> Act:
    return lambda scene: scene.kubectl(ADMIN, "apply", "-f", "-", document=policy(text), refused=refused)


def label_policy(scene: Environment) -> None:
    scene.kubectl(ADMIN, "label", "configmap", NAME, "-n", NAMESPACE, "team=platform")


def create_mirror(scene: Environment) -> None:
    """Create the mirror Pod of a static Pod as its kubelet does."""
    uid = scene.plane.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
    document = set_metadata(pod("mirror", nodeName=NODE), annotations=MIRRORED, ownerReferences=[owner])
    create(document, user=KUBELET)(scene)


def tighten(scene: Environment) -> None:
    create(pod("gated", **GATED))(scene)
    patch("gated", {"spec": {"nodeSelector": {"rack": "r1"}}})(scene)


def _terminate(scene: Environment) -> None:
    """Create a Pod that a finalizer holds, and delete it.

    Each caller then releases the Pod, because a step runs again if the Pod garbage collector was faster.
    """
    create(set_metadata(pod("held", **GATED), finalizers=[HOLD]))(scene)
    kubectl("delete", "pod", "held", "--wait=false")(scene)


def relabel_terminating(scene: Environment) -> None:
    """Remove the finalizer and Podgate's label from a terminating Pod at once, which is refused."""
    _terminate(scene)
    patch("held", {"metadata": {"finalizers": None, "labels": {"podgate.io/service": None}}}, refused=True)(scene)
    patch("held", _RELEASED)(scene)


def release_terminating(scene: Environment) -> None:
    """Remove the finalizer from a terminating Pod."""
    _terminate(scene)
    patch("held", _RELEASED)(scene)


def delete(scene: Environment) -> None:
    create(pod("deleted", **GATED))(scene)
    kubectl("delete", "pod", "deleted")(scene)


def run(scene: Environment) -> None:
    """Create a Pod and wait until it runs; from then on only the steps change it."""
    create(pod("running"))(scene)
    scene.await_running("running")


def evict(scene: Environment) -> None:
    metadata = {"name": "running", "namespace": SPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{SPACE}/pods/running/eviction"
    scene.kubectl(ALICE, "create", f"--raw={path}", "-f", "-", document=eviction)
