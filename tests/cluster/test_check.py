"""`podgate check` on a real control plane: no finding on a healthy installation, and each planted fault is found."""

import base64
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.check import (
    _CONFIG_MAPS,
    _SECRETS,
    POLICY,
    SHOP,
    WEB,
    budget,
    check,
    foreign,
    healthy,
    list_findings,
    manifest,
    plant,
    render_slow_configurations,
    second_server,
    secret,
    secrets,
    service,
    webhooks,
)
from tests.cluster.identities import Identities
from tests.cluster.installation import MANIFESTS, RBAC, Installation
from tests.cluster.processes import ComponentError
from tests.redis_servers import RedisServer, names, program
from tests.redis_servers.access import acl_file, user
from tests.timeouts import HANG_SECONDS
from webhook.core.document import configmap
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.operations import cluster_check

__all__ = ["healthy"]

_BUDGET = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/podgate-b"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_MERGE = "application/merge-patch+json"


def test_healthy_installation_has_no_finding(healthy: Installation) -> None:
    outputs: list[str] = []

    def has_passed() -> bool:
        done = check(healthy, "--strict")
        outputs.append(done.out + done.err)
        return done.code == 0

    try:
        healthy.plane.wait(has_passed, "no finding", healthy.servers[0].name, timeout_seconds=HANG_SECONDS)
    except ComponentError as error:
        raise AssertionError(outputs[-1]) from error
    assert "ok Pods of services pass through Podgate (tried with dryRun)" in outputs[-1]
    assert outputs[-1].endswith("\nno findings\n")


def finds(installation: Installation, *codes: str) -> dict[str, list[dict[str, Any]]]:
    """Wait until a check finds all of these, and return its findings: the API server notices changes with a delay."""
    seen: list[dict[str, list[dict[str, Any]]]] = []

    def has_found_all() -> bool:
        seen.append(list_findings(installation))
        return {*codes} <= seen[-1].keys()

    try:
        installation.plane.wait(has_found_all, "the findings", "kube-apiserver", timeout_seconds=HANG_SECONDS)
    except ComponentError as error:
        raise AssertionError(f"not found: {sorted({*codes} - seen[-1].keys())} in {sorted(seen[-1])}") from error
    return seen[-1]


def ends(installation: Installation, *codes: str) -> None:
    """Wait until a check has none of these findings: the remedies were applied."""
    left: list[set[str]] = []

    def none_found() -> bool:
        left.append({*codes} & list_findings(installation).keys())
        return not left[-1]

    try:
        installation.plane.wait(none_found, "the findings to end", "kube-apiserver", timeout_seconds=HANG_SECONDS)
    except ComponentError as error:
        raise AssertionError(f"still found: {sorted(left[-1])}") from error


def test_port_on_which_nothing_listens_is_found(healthy: Installation) -> None:
    """Pods pass unjudged while the server is ready: only the API server knows, and Pods created with dryRun show it."""
    with webhooks(healthy, *render_slow_configurations(healthy, port=1)):
        findings = finds(healthy, "webhooks-not-called", "calls-fail", "calls-fail-open")
        assert f"service shop in namespace {SHOP}" in findings["webhooks-not-called"][0]["value"]
        assert "connection refused" in findings["calls-fail"][0]["value"]
        names = {finding["object"].rpartition(" ")[2] for finding in findings["calls-fail-open"]}
        assert names == {"mutate.podgate.io", "validate-open.podgate.io"}
        wait_seconds_after_the_last_review(healthy)
        healthy.create_pod(SHOP, "unjudged", labels={"app": "shop"})
        findings = finds(healthy, "pods-unjudged", "nobody-asks")
        assert "unjudged" in findings["pods-unjudged"][0]["value"]
        names = ["unjudged", *create_pods_until_one_is_reported(healthy)]
    healthy.plane.delete(*(f"/api/v1/namespaces/{SHOP}/pods/{name}?gracePeriodSeconds=0" for name in names))


def test_decisions_that_only_their_server_keeps_are_found(healthy: Installation, tmp_path: Path) -> None:
    """A second server whose Redis user may not write the stream of decisions."""
    users = acl_file(tmp_path / "users.acl", user("users", "old").replace(" +xadd +xrevrange", ""))
    with RedisServer(program(names()[0]), tmp_path / "redis", "--aclfile", str(users)) as redis:
        store = ("--store", f"redis://podgate:old@127.0.0.1:{redis.port}/0", "--store-deadline", "10s")
        server = healthy.start_server("--drain", "0s", "--decision-listen", "127.0.0.1:0", *store)
        healthy.load_balancer.targets = [server.target]
        healthy.load_balancer.cut()
        healthy.create_pod(SHOP, "unshared", dry_run=True, labels={"app": "shop"})
        findings = finds(healthy, "decisions-not-shared")
        healthy.stop_server(server)
    assert "+xadd" in findings["decisions-not-shared"][0]["remedy"]


def create_pods_until_one_is_reported(installation: Installation) -> list[str]:
    """Return the names of the Pods: those that may be older than their policy are not reported."""
    names: list[str] = []

    def is_reported() -> bool:
        listed = installation.plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        if any(event["reason"] == "PodsNotReviewed" and f"Pod {SHOP}/unjudged" in event["note"] for event in listed):
            return True
        names.append(f"unjudged-{len(names)}")
        installation.create_pod(SHOP, names[-1], labels={"app": "shop"})
        time.sleep(1)
        return False

    installation.plane.wait(is_reported, "the Event about a Pod without a review")
    assert installation.servers[0].metrics()['podgate_unjudged_pods_total{service="shop"}'] > 0
    return names


def wait_seconds_after_the_last_review(installation: Installation) -> None:
    last_us = parse_microseconds(installation.servers[0].status()["lastReviewAt"])
    installation.plane.wait(lambda: time.time_ns() // 1000 - last_us > 7_000_000, "7 s to pass")


def test_refused_credentials_are_found(healthy: Installation) -> None:
    balancer = healthy.plane.load_balancers["without-token"]
    balancer.targets = [server.target for server in healthy.servers]
    with webhooks(healthy, *render_slow_configurations(healthy, port=balancer.port)):
        findings = finds(healthy, "webhooks-not-called", "calls-refused")
    assert "reason=authentication_no_token" in findings["calls-refused"][0]["field"]
    balancer.targets = []


def test_faults_of_webhook_configurations_are_found(healthy: Installation, identities: Identities) -> None:
    plane = healthy.plane
    mutating, validating, _ = render_slow_configurations(healthy)
    mutate, (closed, opened, *_) = mutating["webhooks"][0], validating["webhooks"]
    mutate["matchConditions"].pop()
    name_label = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SHOP]}
    mutate["namespaceSelector"]["matchExpressions"].append(name_label)
    mutate["timeoutSeconds"] = 1
    closed["failurePolicy"] = "Ignore"
    opened |= {"failurePolicy": "Fail", "namespaceSelector": {}, "matchConditions": []}
    stranger = (identities.files.folder / "stranger" / "ca.crt").read_bytes()
    closed["clientConfig"]["caBundle"] = base64.b64encode(stranger).decode()
    mutate["clientConfig"]["service"] |= {"name": "check-other", "port": 9}
    other = service("check-other", {"app": "nothing-has-this"})
    undoing = foreign("Mutating", "zz-undoing", reinvocationPolicy="IfNeeded")
    blocking = foreign("Validating", "zz-blocking", namespaceSelector={}, failurePolicy="Fail")
    wrong_name = identities.callers["wrong-name"].certificate
    assert wrong_name is not None
    secret(plane, "podgate-tls", tls_crt=wrong_name.read_bytes())
    plane.apply(other, undoing, blocking)
    plane.delete(f"{_ADMISSION}/validatingwebhookconfigurations/podgate-policy")
    with webhooks(healthy, mutating, validating):
        codes = (
            *("webhooks-missing", "webhooks-stale", "failure-policy", "namespaces-left-out", "own-namespace-selected"),
            *("webhook-timeout", "ca-bundle", "webhook-port", "no-endpoints", "deployment-missing"),
            *("webhook-undone", "other-webhook-blocks", "serving-certificate-names"),
        )
        findings = finds(healthy, *codes)
    plane.delete(
        f"/api/v1/namespaces/{NAMESPACE}/services/check-other",
        f"{_ADMISSION}/mutatingwebhookconfigurations/zz-undoing",
        f"{_ADMISSION}/validatingwebhookconfigurations/zz-blocking",
    )
    secret(plane, "podgate-tls", tls_crt=identities.files.pki.paths.certificate.read_bytes())
    ends(healthy, *codes)
    assert {finding["field"] for finding in findings["failure-policy"]} == {
        "webhooks[validate-closed.podgate.io].failurePolicy",
        "webhooks[validate-open.podgate.io].failurePolicy",
    }
    assert "mutate.podgate.io differs in matchConditions" in findings["webhooks-stale"][0]["value"]
    assert [finding["object"] for finding in findings["webhooks-missing"]] == [
        "ValidatingWebhookConfiguration/podgate-policy"
    ]
    assert "check-other:9" in findings["webhook-port"][0]["value"]


def test_faults_of_objects_in_podgates_namespace_are_found(healthy: Installation, identities: Identities) -> None:
    plane, callers = healthy.plane, identities.callers
    expired, token = callers["expired-certificate"].certificate, callers["expired-token"].token
    assert expired is not None
    assert token is not None
    secret(plane, "podgate-apiserver", tls_crt=expired.read_bytes(), token=token.read_bytes())
    plane.delete(f"{_SECRETS}/podgate-tls")
    [deployment] = manifest("30-deployment.yaml")
    deployment["spec"]["replicas"] = 2
    deployment["spec"]["template"]["spec"]["nodeSelector"] = {"nothing-has": "this"}
    plane.apply(deployment, second_server(), budget(), *role_without("events"))
    pod = f"/api/v1/namespaces/{NAMESPACE}/pods"
    plane.api.request("POST", pod, make_crashing_pod())
    waiting = {"name": "podgate", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    status = {"status": {"containerStatuses": [{**waiting, "image": "i", "imageID": "i", "ready": False}]}}
    code, answer = plane.api.request("PATCH", f"{pod}/check-crashing/status", status, _MERGE)
    assert code == 200, answer
    codes = (
        *("secret-missing", "certificate-expired", "deployment-unavailable", "replicas-in-memory", "single-replica"),
        *("budget-missing", "budget-blocks", "images-differ", "pods-crash", "right-missing"),
    )
    findings = finds(healthy, *codes)
    plane.apply_file(MANIFESTS / "base" / "30-deployment.yaml")
    plane.apply_file(RBAC)
    plane.delete(f"{pod}/check-crashing", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/podgate-b", _BUDGET)
    secrets(healthy.plane, identities)
    ends(healthy, *codes)
    assert len(findings["certificate-expired"]) == 2
    assert [finding["object"] for finding in findings["budget-missing"]] == [f"Deployment {NAMESPACE}/podgate"]
    assert "create events" in findings["right-missing"][0]["value"]


def role_without(resource: str) -> list[dict[str, Any]]:
    """Return the ClusterRole of servers without the rule of a resource."""
    [role] = [
        document
        for document in manifest("10-rbac.yaml")
        if (document["kind"], document["metadata"]["name"]) == ("ClusterRole", "podgate")
    ]
    role["rules"] = [rule for rule in role["rules"] if resource not in rule["resources"]]
    return [role]


def make_crashing_pod() -> dict[str, Any]:
    """Return a Pod that no scheduler and no kubelet changes."""
    [deployment] = manifest("30-deployment.yaml")
    spec = deployment["spec"]["template"]["spec"] | {"schedulerName": "nobody"}
    metadata = {"name": "check-crashing", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_faults_of_policy_and_overrides_are_found(healthy: Installation) -> None:
    """Plant them without the webhook that would refuse them."""
    plane = healthy.plane
    plane.delete(f"{_ADMISSION}/validatingwebhookconfigurations/podgate-policy")
    plant(plane, configmap.NAME, configmap.KEY, "kind: Policy\n")
    plant(plane, configmap.OVERRIDES, configmap.OVERRIDES_KEY, "- {service: web}\n")
    findings = finds(healthy, "policy-invalid", "overrides-invalid", "webhooks-missing")
    assert "apiVersion" in " ".join(finding["value"] for finding in findings["policy-invalid"])
    plane.delete(*(f"{_CONFIG_MAPS}/{name}" for name in (configmap.NAME, configmap.OVERRIDES)))
    assert podgate("check", "--kubeconfig", plane.kubeconfig, "--server", "http://127.0.0.1:1").code == 1
    assert "policy-missing" in list_findings(healthy)
    healthy.apply_policy(POLICY)
    plane.apply(*render_slow_configurations(healthy))
    healthy.wait_for_policy(POLICY)
    ends(healthy, "policy-invalid", "policy-missing", "overrides-invalid", "webhooks-missing")


def test_policy_that_does_not_fit_the_cluster_is_found(healthy: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = healthy.plane
    names = ", ".join(f"{field}: nowhere" for field in ("priorityClassName", "runtimeClassName", "schedulerName"))
    placement = f"{names}, nodeSelector: {{nothing-has: this}}"
    unfit = (
        POLICY.replace("nodeSelector: {kubernetes.io/os: linux}", placement).replace("pods: 1000", "pods: 1")
        + "- {name: system, match: {namespaces: [system-apps, kube-system]}}\n"
        + "- {name: nowhere, match: {namespaces: [nothing-has-this]}}\n"
    )
    healthy.change_policy(unfit)
    plane.delete(f"{_ADMISSION}/validatingwebhookconfigurations/podgate-policy")
    until = "until: 2100-01-01T00:00:00Z, reason: INC-1"
    plant(plane, configmap.OVERRIDES, configmap.OVERRIDES_KEY, f"- {{service: webb, quotaFactor: 2, {until}}}\n")
    plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=3", "-n", WEB)
    healthy.create_pod(SHOP, "unseen", schedulerName="nowhere")
    codes = (
        *("service-owns-nothing", "namespace-exempt", "priority-class-missing", "runtime-class-missing"),
        *("no-node-fits", "replicaset-held", "override-unknown", "service-selects-no-pod"),
    )
    findings = finds(healthy, *codes)
    assert "QuotaExceeded" in findings["replicaset-held"][0]["value"]
    assert [finding["object"] for finding in findings["service-owns-nothing"]] == ["service nowhere"]

    # This machine's clock is an hour ahead: some states have lasted for long, and others are about to end.
    now_ns = time.time_ns
    monkeypatch.setattr(cluster_check.time, "time_ns", lambda: now_ns() + 2 * 3600 * 10**9)
    late = list_findings(healthy)
    assert {"clock-skew", "scheduler-missing", "leader-missing"} <= late.keys()
    assert late["scheduler-missing"][0]["value"].startswith("nowhere, set by the policy for shop: 1 Pods were never")
    monkeypatch.undo()
    plane.delete(f"/apis/apps/v1/namespaces/{WEB}/deployments/web", f"/api/v1/namespaces/{SHOP}/pods/unseen")
    plane.delete(f"{_CONFIG_MAPS}/{configmap.OVERRIDES}")
    healthy.change_policy(POLICY)
    plane.apply(*render_slow_configurations(healthy))
    ends(healthy, *codes, "scheduler-missing")


def test_what_may_not_be_read_is_not_ticked(healthy: Installation) -> None:
    server = f"http://{healthy.servers[0].plain}"
    done = podgate("check", "--kubeconfig", healthy.plane.write_kubeconfig("nobody"), "--server", server)
    assert done.code == 0, done.out
    reasons = re.findall(r"^\?\? not checked: (.+)\n    (.+)$", done.out, re.MULTILINE)
    of_pods = {reason: codes for codes, reason in reasons}["you may not list pods in podgate-system"]
    assert "pods-crash" in of_pods.split(", ")
    of_policy = "you may not get configmaps named podgate-policy in podgate-system"
    assert any("webhooks-not-called" in codes and reason == of_policy for codes, reason in reasons)
    assert "ok it is ready" in done.out


def test_api_server_that_does_not_answer_is_exit_2(healthy: Installation) -> None:
    away = healthy.plane.write_kubeconfig("nobody", server="https://127.0.0.1:1")
    done = podgate("check", "--kubeconfig", away)
    assert done.code == 2
    assert done.error.startswith("https://127.0.0.1:1: ")
