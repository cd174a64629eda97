"""Rules in CEL compared with a ValidatingAdmissionPolicy that says the same, on generated Pods at an API server."""

import json
from collections import Counter
from random import Random
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate

PODS = 500
OURS, THEIRS = "rules-of-podgate", "rules-of-kubernetes"
RULES = {
    "few-cores": (
        'pod.containers.all(c, c.requests.cpu <= quantity("2").milliValue)',
        (
            "object.spec.containers.all(c, !has(c.resources) || !has(c.resources.requests)"
            " || !('cpu' in c.resources.requests)"
            " || quantity(c.resources.requests['cpu']).compareTo(quantity('2')) <= 0)"
        ),
    ),
    "known-tier": (
        'pod.labels[?"tier"].orValue("") in ["web", "batch"]',
        (
            "has(object.metadata.labels) && 'tier' in object.metadata.labels"
            " && object.metadata.labels['tier'] in ['web', 'batch']"
        ),
    ),
    "spot-by-effect": (
        'pod.tolerations.all(t, t.key != "spot" || t.effect == "NoSchedule")',
        (
            "!has(object.spec.tolerations) || object.spec.tolerations.all(t, !has(t.key) || t.key != 'spot'"
            " || (has(t.effect) && t.effect == 'NoSchedule'))"
        ),
    ),
    "memory-has-a-limit": (
        'pod.containers.all(c, has(c.limits.memory) && c.limits.memory <= quantity("1Gi").value)',
        (
            "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits)"
            " && 'memory' in c.resources.limits"
            " && quantity(c.resources.limits['memory']).compareTo(quantity('1Gi')) <= 0)"
        ),
    ),
    "plain-name": (
        'pod.name.matches("^[a-z]{1,4}-[0-9]+$")',
        "object.metadata.name.matches('^[a-z]{1,4}-[0-9]+$')",
    ),
    "few-containers": (
        "size(pod.containers) + size(pod.initContainers) <= 3",
        "size(object.spec.containers) + (has(object.spec.initContainers) ? size(object.spec.initContainers) : 0) <= 3",
    ),
    "disk-of-the-tier": (
        'pod.nodeSelector[?"disk"].orValue("ssd") == "ssd" || pod.labels[?"tier"].orValue("") != "web"',
        (
            "!has(object.spec.nodeSelector) || !('disk' in object.spec.nodeSelector)"
            " || object.spec.nodeSelector['disk'] == 'ssd'"
            " || !has(object.metadata.labels) || !('tier' in object.metadata.labels)"
            " || object.metadata.labels['tier'] != 'web'"
        ),
    ),
}
POLICY = json.dumps(
    {
        "apiVersion": "podgate.io/v1alpha1",
        "kind": "Policy",
        "services": [
            {
                "name": "web",
                "failureMode": "Closed",
                "match": {"namespaces": [OURS]},
                "rules": [{"name": name, "require": ours, "mode": "Enforce"} for name, (ours, _) in RULES.items()],
            }
        ],
    }
)
_ADMISSION = "admissionregistration.k8s.io/v1"


def admission_policy() -> list[dict[str, Any]]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    validations = [{"expression": theirs, "message": f"rule {name}:"} for name, (_, theirs) in RULES.items()]
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": THEIRS}}}
    specs = {
        "ValidatingAdmissionPolicy": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": validations,
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": THEIRS,
            "validationActions": ["Deny"],
            "matchResources": selector,
        },
    }
    return [
        {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": THEIRS}, "spec": spec}
        for kind, spec in specs.items()
    ]


def make_pod(random: Random, number: int) -> dict[str, Any]:
    """Make a Pod that the API server accepts, and that mostly violates no rule or one."""

    def seldom(usual: Any, *others: Any) -> Any:
        return usual if random.random() < 0.85 else random.choice(others)

    def make_container(name: str) -> dict[str, Any]:
        cpu, memory = seldom("500m", "2", "2001m", "3", "1999m", None), seldom("512Mi", "1Gi", "1025Mi", "1.5Gi", None)
        resources: dict[str, Any] = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": "4"}}
        if memory:
            resources["limits"]["memory"] = memory
        return {
            "name": name,
            "image": "i",
            "resources": seldom(resources, {}, {"limits": {"cpu": "2", "memory": "1Gi"}}),
        }

    spec: dict[str, Any] = {
        "containers": [make_container(f"c{place}") for place in range(random.choice([1, 1, 2, 3]))],
        "initContainers": [make_container(f"i{place}") for place in range(seldom(0, 1, 2))],
        "nodeSelector": seldom({}, {"disk": "ssd"}, {"disk": "hdd"}),
        "tolerations": seldom(
            [],
            [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            [{"key": "spot", "operator": "Exists"}],
            [{"operator": "Exists"}],
        ),
    }
    labels = seldom({"tier": random.choice(["web", "batch"])}, {}, {"tier": "other"}, {"app": "web"})
    metadata = {"name": f"{seldom('web', 'longer', 'w-x')}-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def violated_rule(plane: ControlPlane, namespace: str, pod: dict[str, Any]) -> str:
    """Create a Pod without keeping it; return the first rule that denies it, "" if it is admitted."""
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    if status == 201:
        return ""
    message = str(answer["message"])
    assert "rule " in message, answer
    return message.partition("rule ")[2].partition(":")[0]


def test_rule_and_admission_policy_give_the_same_verdict(plane: ControlPlane, identities: Identities) -> None:
    random = Random(41)  # noqa: S311  not for secrets
    with install_podgate(plane, identities.files, POLICY, [OURS]) as installation:
        installation.wait_for_calls()
        plane.create_namespace(THEIRS)
        plane.apply(*admission_policy())
        probe = make_pod(random, 0) | {"metadata": {"name": "not-plain"}}
        plane.wait(lambda: violated_rule(plane, THEIRS, probe) != "", "the admission policy to deny")
        found: Counter[str] = Counter()
        for number in range(PODS):
            pod = make_pod(random, number)
            ours, theirs = violated_rule(plane, OURS, pod), violated_rule(plane, THEIRS, pod)
            assert ours == theirs, pod
            found[ours] += 1
        assert found[""] > PODS // 10
        assert {*found} == {"", *RULES}
