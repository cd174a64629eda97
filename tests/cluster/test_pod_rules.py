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
    "pinned-images": (
        'pod.containers.all(c, c.image.contains(":") && !c.image.endsWith(":latest"))',
        "object.spec.containers.all(c, c.image.contains(':') && !c.image.endsWith(':latest'))",
    ),
    "own-network": (
        "!pod.hostNetwork && pod.containers.all(c, c.ports.all(p, p.hostPort == 0))",
        (
            "(!has(object.spec.hostNetwork) || !object.spec.hostNetwork) && object.spec.containers.all(c,"
            " !has(c.ports) || c.ports.all(p, !has(p.hostPort) || p.hostPort == 0))"
        ),
    ),
    "no-privileges": (
        'pod.containers.all(c, !c.securityContext.privileged && !("NET_ADMIN" in c.securityContext.capabilities.add))',
        (
            "object.spec.containers.all(c, !has(c.securityContext) || ((!has(c.securityContext.privileged)"
            " || !c.securityContext.privileged) && (!has(c.securityContext.capabilities)"
            " || !has(c.securityContext.capabilities.add) || !('NET_ADMIN' in c.securityContext.capabilities.add))))"
        ),
    ),
    "no-host-path": (
        'pod.volumes.all(v, v.kind in ["emptyDir", "secret", "configMap", "projected"])',
        (
            "!has(object.spec.volumes) || object.spec.volumes.all(v,"
            " has(v.emptyDir) || has(v.secret) || has(v.configMap) || has(v.projected))"
        ),
    ),
    "secrets-in-files": (
        "pod.containers.all(c, c.env.all(e, !has(e.valueFrom.secretKeyRef)))",
        (
            "object.spec.containers.all(c, !has(c.env) || c.env.all(e,"
            " !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef)))"
        ),
    ),
    "has-a-ticket": (
        'pod.annotations[?"ticket"].orValue("T-0").startsWith("T-")',
        (
            "!has(object.metadata.annotations) || !('ticket' in object.metadata.annotations)"
            " || object.metadata.annotations['ticket'].startsWith('T-')"
        ),
    ),
    "is-probed": (
        "pod.containers.all(c, has(c.readinessProbe) && c.readinessProbe.periodSeconds <= 30)",
        "object.spec.containers.all(c, has(c.readinessProbe) && c.readinessProbe.periodSeconds <= 30)",
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

    def seldom(usual: Any, *others: Any, odds: float = 0.15) -> Any:
        return usual if random.random() >= odds else random.choice(others)

    def make_details(port: int, *, is_main: bool) -> dict[str, Any]:
        secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
        added = {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}
        probe = {"tcpSocket": {"port": 80}}
        often = {"readinessProbe": {**probe, "periodSeconds": 60}}
        probed = seldom({"readinessProbe": probe}, {}, often, odds=0.06)
        return {
            "image": seldom("i:1", "i:latest", "i", "i:1-latest", odds=0.06),
            "ports": seldom([{"containerPort": port}], [{"containerPort": port, "hostPort": port}], [], odds=0.06),
            "securityContext": seldom({}, {"privileged": True}, added, {"runAsUser": 1}, odds=0.08),
            "env": seldom([{"name": "A", "value": "b"}], [secret], [], odds=0.06),
            **(probed if is_main else {}),
        }

    def make_container(name: str) -> dict[str, Any]:
        cpu, memory = seldom("500m", "2", "2001m", "3", "1999m", None), seldom("512Mi", "1Gi", "1025Mi", "1.5Gi", None)
        resources: dict[str, Any] = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": "4"}}
        if memory:
            resources["limits"]["memory"] = memory
        return {
            "name": name,
            **make_details(80 + int(name[1:]), is_main=name.startswith("c")),
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
        **seldom({}, {"hostNetwork": True}, odds=0.04),
        "volumes": seldom(
            [{"name": "a", "emptyDir": {}}],
            [{"name": "a", "hostPath": {"path": "/"}}],
            [{"name": "a"}, {"name": "b", "projected": {"sources": []}}],
            [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}],
            odds=0.1,
        ),
    }
    labels = seldom({"tier": random.choice(["web", "batch"])}, {}, {"tier": "other"}, {"app": "web"})
    annotations = seldom({}, {"ticket": "T-1"}, {"ticket": "none"})
    metadata = {"name": f"{seldom('web', 'longer', 'w-x')}-{number}", "labels": labels, "annotations": annotations}
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


def test_update_that_makes_a_pod_violate_a_rule_is_denied(plane: ControlPlane, identities: Identities) -> None:
    """A user may change the image of a running Pod: the API server calls for it only where a rule reads images."""
    image = {"name": "pinned", "require": RULES["pinned-images"][0], "mode": "Enforce"}
    service = {"name": "web", "failureMode": "Closed", "match": {"namespaces": [OURS]}, "rules": [image]}
    policy = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": [service]}
    with install_podgate(plane, identities.files, json.dumps(policy), [OURS]) as installation:
        installation.wait_for_calls()
        path = f"/api/v1/namespaces/{OURS}/pods"
        container = {"name": "c", "image": "i:1"}
        pod = {"metadata": {"name": "web"}, "spec": {"containers": [container]}}
        assert plane.api.request("POST", path, pod)[0] == 201
        statuses = {}
        for changed in ("i:2", "i:latest"):
            patch = {"spec": {"containers": [{"name": "c", "image": changed}]}}
            strategic = "application/strategic-merge-patch+json"
            statuses[changed], answer = plane.api.request("PATCH", f"{path}/web", patch, strategic)
        assert statuses == {"i:2": 200, "i:latest": 403}
        assert "rule pinned: " in answer["message"]
