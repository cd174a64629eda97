"""Another mutating webhook, called after Podgate's, which applies a given patch."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.placement.pods import pod
from tests.cluster.recording_webhook import Recorder

Json = dict[str, Any]
Patch = Callable[[Json], list[Json]]
"""Returns the JSON patch of a Pod."""


@contextmanager
def register_webhook(
    plane: ControlPlane, identities: Identities, namespace: str, patch: Patch, **more: Any
) -> Iterator[None]:
    """Register a webhook for new Pods of a namespace; `more` is added to its configuration."""

    async def answer(_: str, body: bytes) -> bytes:
        request = json.loads(body)["request"]
        patched = base64.b64encode(json.dumps(patch(request["object"])).encode()).decode()
        response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patched}
        head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return json.dumps({**head, "response": response}).encode()

    with Recorder(identities.files.pki.paths, answer) as recorder:
        # Configurations are called in the order of their names.
        name = f"zz-{namespace}"
        plane.apply(_configuration(name, recorder.address, identities, namespace, **more))
        try:
            plane.wait(
                lambda: _is_called(plane, recorder, namespace), "the other webhook to be called", "kube-apiserver"
            )
            yield
        finally:
            plane.kubectl("delete", "mutatingwebhookconfiguration", name)


def _configuration(name: str, address: str, identities: Identities, namespace: str, **more: Any) -> Json:
    bundle = base64.b64encode((identities.files.folder / "ca.crt").read_bytes()).decode()
    webhook = {
        "name": "neighbour.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://{address}/mutate", "caBundle": bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "failurePolicy": "Fail",
        **more,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": name}, "webhooks": [webhook]}


def _is_called(plane: ControlPlane, recorder: Recorder, namespace: str) -> bool:
    recorder.take_calls()
    plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod("asks", "asks"))
    return bool(recorder.take_calls())
