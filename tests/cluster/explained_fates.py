"""Fates of Pods and workloads for `podgate explain`: how each comes about, its first line, and how its cause ends."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cluster import kubelet_reports as kubelet
from tests.cluster.installation import Installation

Json = dict[str, Any]
Change = Callable[[Installation], None]

SPACE, CLASSY, QUEUED, SMALL, SECURE, GUARDED, ENDING = (
    f"fates-{name}" for name in ("shop", "classy", "queued", "small", "secure", "guarded", "ending")
)
NAMESPACES = (SPACE, CLASSY, QUEUED, SMALL, SECURE, GUARDED, ENDING)
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions: {{daemonSets: false}}
services:
- name: shop
  match: {{namespaces: [{SPACE}, {SMALL}, {SECURE}, {GUARDED}, {ENDING}]}}
- name: classy
  match: {{namespaces: [{CLASSY}]}}
  placement: {{priorityClassName: fates-gold}}
- name: queued
  match: {{namespaces: [{QUEUED}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}], whenExceeded: Queue, queue: {{maxWait: 1h}}}}
"""
UNSEEN: Json = {"schedulerName": "nobody"}
RUNNING = r"Running: (1 of 1 Pods: )?on \S+, 1 of 1 containers ready"
REPORTED: dict[str, Callable[[], None]] = {}
"""Of each app whose status was written: writes it again where it was lost."""
_GROUPS = {"Job": "batch", "CronJob": "batch", "Deployment": "apps", "StatefulSet": "apps", "DaemonSet": "apps"}


@dataclass(frozen=True)
class ExplainedFate:
    """One fate: `make` brings it about, `change` ends its cause; each is followed by a first line."""

    asked: str
    make: Change
    first: str
    change: Change
    then: str = RUNNING
    namespace: str = SPACE
    remedy: str = ""
    """Part of the printed remedy."""


def template(app: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "i", **spec.pop("container", {})}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


def pod(app: str, namespace: str = SPACE, metadata: Json | None = None, **spec: Any) -> Change:
    """Create a bare Pod."""
    pod_template = template(app, **spec)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod_template,
        "metadata": {"name": app, **pod_template["metadata"], **(metadata or {})},
    }
    return lambda shop: _post(shop, f"/api/v1/namespaces/{namespace}/pods", body)


def workload(kind: str, app: str, namespace: str = SPACE, *, of: Json | None = None, **spec: Any) -> Change:
    """Create a workload of one Pod; `of` are fields of the workload's spec."""
    group = _GROUPS[kind]
    body: Json = {"template": template(app, **spec), **(of or {})}
    if group == "apps":
        body["selector"] = {"matchLabels": {"app": app}}
    elif kind == "Job":
        body["template"]["spec"].setdefault("restartPolicy", "Never")
    else:
        body["template"]["spec"].setdefault("restartPolicy", "Never")
        body = {"schedule": "0 0 29 2 *", **(of or {}), "jobTemplate": {"spec": {"template": body["template"]}}}
    document = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": app}, "spec": body}
    return lambda shop: _post(shop, f"/apis/{group}/v1/namespaces/{namespace}/{kind.lower()}s", document)


def create(path: str, document: Json) -> Change:
    return lambda shop: _post(shop, path, document)


def delete(path: str) -> Change:
    return lambda shop: shop.plane.delete(path)


def patch(path: str, document: Json) -> Change:
    return lambda shop: kubelet.patch(shop.plane, path, document)


def steps(*changes: Change) -> Change:
    def apply_all(shop: Installation) -> None:
        for change in changes:
            change(shop)

    return apply_all


def report_status(app: str, status: Callable[[], Json], *events: tuple[str, str], of_container: bool = False) -> Change:
    """Write Events as (reason, message), then a status: as on a node, a container ends after its probe has failed."""

    def report(shop: Installation) -> None:
        path = kubelet.pod_path(shop.plane, SPACE, app)
        uid = shop.plane.api.get(path)["metadata"]["uid"]
        for reason, message in events:
            kubelet.event(shop.plane, path, reason, message, of_container=of_container)
        written = kubelet.write(shop.plane, path, status())
        REPORTED[app] = lambda: kubelet.write_again(shop.plane, path, uid, written)

    return report


def _post(shop: Installation, path: str, document: Json) -> None:
    code, answer = shop.plane.api.request("POST", path, document)
    assert code == 201, answer
