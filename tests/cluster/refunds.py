"""Parts of the tests of refunds that other tests use."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.recording_webhook import Answer, Recorder

SERVICES = ("quota", "webhook", "name", "client", "came")


POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed, quota: {windows: [{window: 1h, hard: {pods: 1000}}], standing: {hard: {pods: 1000}}}}
services:
""" + "".join(f"- {{name: {name}, match: {{namespaces: [refunds-{name}-STORE]}}}}\n" for name in SERVICES)


_ANOTHER = "zz-another"
"""Mutating configurations are called in the order of their names: after Podgate's."""


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"refunds-{name}-{store}" for name in SERVICES]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


@contextmanager
def another_webhook(
    running: ControllerFixture, namespace: str, answer: Answer, half: str = "Validating"
) -> Iterator[Recorder]:
    """Register another webhook for the Pods of a namespace; wait until it is called."""
    files = running.installation.files
    with Recorder(files.pki.paths, answer) as recorder:
        bundle = b64encode((files.folder / "ca.crt").read_bytes()).decode()
        running.plane.apply(configuration(f"https://{recorder.address}/another", bundle, namespace, half))
        try:

            def is_called() -> bool:
                running.installation.create_pod(namespace, dry_run=True)
                return bool(recorder.take_calls())

            running.plane.wait(is_called, "the other webhook to be called", "kube-apiserver")
            yield recorder
        finally:
            running.plane.kubectl("delete", f"{half.lower()}webhookconfiguration", _ANOTHER)


def configuration(url: str, bundle: str, namespace: str, half: str) -> dict[str, Any]:
    webhook = {
        "name": "another.example.com",
        "clientConfig": {"url": url, "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 30,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{half}WebhookConfiguration"}
    return {**kind, "metadata": {"name": _ANOTHER}, "webhooks": [webhook]}
