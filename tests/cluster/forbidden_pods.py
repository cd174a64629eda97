"""A ValidatingAdmissionPolicy that denies Pods, as an owner of the cluster may have one beside Podgate."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.controlplane import ControlPlane

_numbers = itertools.count(1)


@contextmanager
def forbid(plane: ControlPlane, operation: str, expression: str) -> Iterator[None]:
    """Let the API server deny Pods for which an expression is false."""
    name = f"forbid-{next(_numbers)}"
    group, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not this one"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    plane.apply({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec})
    plane.apply({"apiVersion": group, "kind": f"{kind}Binding", "metadata": {"name": name}, "spec": binding})
    try:
        yield
    finally:
        plane.delete(f"/apis/{group}/validatingadmissionpolicybindings/{name}")
        plane.delete(f"/apis/{group}/validatingadmissionpolicies/{name}")
