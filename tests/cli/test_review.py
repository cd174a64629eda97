import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import TRACE, Json, podgate, policy_text, run_installed
from tests.harness.nesting import TOO_DEEP
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}},"
    " placement: {schedulerName: podgate-scheduler, nodeSelector: {disk: ssd}},"
    " quota: {windows: [{window: 1m, hard: {pods: 1, cpu: 1}}]}}\n"
    '- {name: teams, match: {namespaces: ["team-*"], namespaceSelector: {matchLabels: {tier: prod}}},'
    " modes: {placement: Warn}, placement: {nodeSelector: {disk: ssd}}}\n"
)
HEADING = ["file", "place", "kind", "namespace", "name"]


def test_diff_of_a_recorded_pod_with_a_uid_has_no_moved_lines() -> None:
    given = pod()
    given["metadata"] |= {"uid": "u", "annotations": {"zone": "b"}}
    out, _ = review_as("diff", make_recorded("CREATE", object=given))
    assert "\n+  schedulerName: podgate-scheduler" in out
    assert "name: p\n" in out
    assert not [line for line in out.splitlines() if line[:1] in "+-" and line[1:].strip() in {"uid: u", "metadata:"}]


RANGED = policy_text("- {name: web, match: {namespaces: [shop]}, resources: {container: {max: {memory: 8Gi}}}}\n")
KEYS = [
    *(*HEADING, "decision", "allowed", "status", "warnings", "patch", "pod", "service", "trace", "dependsOn", "hints"),
    *("slot", "split"),
]


def template(cpu: int | None = None) -> Json:
    requests = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i", **requests}]}}


def make_owned(kind: str, namespace: str = "shop", cpu: int | None = None) -> Json:
    spec: Json = {"template": template(cpu)}
    if kind in {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}:
        spec["selector"] = {"matchLabels": {"app": "web"}}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    if kind == "PodTemplate":
        return {"kind": kind, "metadata": {"name": "web", "namespace": namespace}, **spec}
    return {"kind": kind, "metadata": {"name": "web", "namespace": namespace}, "spec": spec}


def pod(namespace: str = "shop", cpu: int | None = None, **spec: object) -> Json:
    made = template(cpu)
    made["spec"] |= spec
    made["metadata"] |= {"name": "p", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def make_recorded(operation: str, **request: object) -> Json:
    usual = {
        "uid": "r1",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": operation,
        "userInfo": {"username": "alice"},
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**usual, **request}}


@pytest.fixture(autouse=True)
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)


def review(*documents: object, more: tuple[str, ...] = ()) -> list[Json]:
    text = "\n---\n".join(document if isinstance(document, str) else json.dumps(document) for document in documents)
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", *more, stdin=text)
    assert done.code in {0, 3}, done.err
    assert done.code == (0 if all(line["allowed"] for line in done.lines) else 3)
    return done.lines


def check_refused(text: str, *more: str) -> str:
    done = podgate("review", "-", "--policy", "policy.yaml", *more, stdin=text)
    assert (done.code, done.out) == (2, "")
    return done.error


GENERATED_FROM = {"Deployment": "web-<pod-template-hash>-", "CronJob": "web-<minute>-"}
WORKLOADS = ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "CronJob", "PodTemplate"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_workload_is_judged_by_its_generated_pod(kind: str) -> None:
    (line,) = review(make_owned(kind))
    assert list(line) == KEYS
    assert (line["decision"], line["allowed"], line["status"], line["service"]) == ("Admit", True, {"code": 200}, "web")
    assert line["pod"]["spec"]["schedulerName"] == "podgate-scheduler"
    metadata = line["pod"]["metadata"]
    assert metadata["generateName"] == GENERATED_FROM.get(kind, "web-")
    assert metadata.get("name") == ("web-0" if kind == "StatefulSet" else None), "no placeholder as a name"
    assert "uid" not in metadata
    assert line["dependsOn"] == []
    assert {step["half"] for step in line["trace"]} == {"mutate", "validate"}


CANARY = policy_text(
    "- {name: canary, match: {namespaces: [shop], podSelector: {matchLabels: {pod-template-hash: 7d4b6c9f5d}}},"
    " placement: {schedulerName: canary-scheduler}}\n"
    "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}}\n"
)


@pytest.mark.parametrize("named_by", ["CronJob", "generateName"])
def test_a_job_whose_name_is_not_known_yet_waits_as_a_group(named_by: str) -> None:
    queue = "whenExceeded: Queue, queue: {whenExpired: Keep, groups: {from: [Annotations, JobSet, Job]}}"
    quota = f"quota: {{windows: [{{window: 1m, hard: {{pods: 9}}}}], {queue}}}"
    Path("policy.yaml").write_text(policy_text(f"- {{name: web, match: {{namespaces: [shop]}}, {quota}}}\n"))
    written = make_owned("CronJob" if named_by == "CronJob" else "Job")
    if named_by == "generateName":
        written["metadata"] = {"generateName": "train-", "namespace": "shop"}
    done = podgate("review", "-", "--policy", "policy.yaml", "--explain", stdin=json.dumps(written))
    assert done.code == 0, done.out
    name = "web-<minute>" if named_by == "CronJob" else "train-<name>"
    assert f"waits with its group {name} (Job) until as many Pods as its Job has wait and fit" in done.out


def test_job_is_owned_by_the_service_that_selects_its_name() -> None:
    wanted = "podSelector: {matchLabels: {job-name: web}}"
    Path("policy.yaml").write_text(policy_text(f"- {{name: jobs, match: {{namespaces: [shop], {wanted}}}}}\n"))
    job, deployment = review(make_owned("Job"), make_owned("Deployment"))
    assert (job["decision"], job["service"]) == ("Admit", "jobs")
    assert job["pod"]["metadata"]["labels"]["job-name"] == "web"
    assert (deployment["decision"], deployment["service"]) == ("Unmatched", None)


def test_unknown_label_that_decides_the_owner_gives_no_verdict() -> None:
    Path("policy.yaml").write_text(CANARY)
    deployment = make_owned("Deployment")
    deployment["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=json.dumps(deployment))
    (line,) = done.lines
    assert done.code == 0, "nothing is denied"
    assert (line["decision"], line["allowed"], line["status"]) == ("Depends", None, None)
    assert (line["service"], line["patch"]) == (None, [])
    assert line["dependsOn"] == [
        {"service": "canary", "labels": ["pod-template-hash"], "denied": True},
        {"service": "web", "labels": [], "denied": False},
    ]
    (warning,) = line["warnings"]
    assert "will be denied if service canary owns them, which depends on label pod-template-hash: " in warning
    assert line["pod"]["metadata"]["labels"] == {"app": "web", "pod-template-hash": "<pod-template-hash>"}


def test_denial_by_every_possible_service_is_denied() -> None:
    Path("policy.yaml").write_text(CANARY.replace("{app: web}}}}", "{app: web}}}, placement: {schedulerName: mine}}"))
    deployment = make_owned("Deployment")
    deployment["spec"]["template"]["spec"]["schedulerName"] = "theirs"
    (line,) = review(deployment)
    assert (line["decision"], line["allowed"]) == ("Depends", False)
    assert [dependency["denied"] for dependency in line["dependsOn"]] == [True, True]
    out, err = review_as("diff", deployment)
    assert "# Deployment shop/web: Depends, denied in any case\n" in out
    assert err == "1 reviewed: Depends 1 (1 denied in any case)\n", "the summary explains exit code 3"


def test_diff_shows_dependencies_of_a_verdict() -> None:
    Path("policy.yaml").write_text(CANARY)
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "diff", stdin=json.dumps(make_owned("Deployment")))
    assert done.out == (
        "# Deployment shop/web: Depends\n"
        "# depends: service canary owns the Pod, if its podSelector fits the Pod's label pod-template-hash\n"
        "# depends: service web owns the Pod otherwise\n"
    )


def test_every_reviewed_kind_is_supported() -> None:
    assert {f"{kind.lower()}s" for kind in (*WORKLOADS, "DaemonSet")} >= {source.resource for source in WORKLOAD_KINDS}


def test_daemon_set_is_exempt_and_unowned_pod_unmatched() -> None:
    lines = review(make_owned("DaemonSet"), pod("elsewhere"), pod("kube-system"))
    assert [(line["decision"], line["service"], line["patch"]) for line in lines] == [
        ("Exempt", None, []),
        ("Unmatched", None, []),
        ("Exempt", None, []),
    ]


def test_denial_has_a_reason_and_reviews_charge_nothing() -> None:
    lines = review(pod(), pod(), make_owned("Job", cpu=4), pod(nodeSelector={"disk": "hdd"}))
    assert [line["decision"] for line in lines] == ["Admit", "Admit", "Deny", "Deny"]
    assert (lines[2]["status"]["code"], lines[2]["status"]["reason"]) == (429, "TooManyRequests")
    assert "can never pass" in lines[2]["status"]["message"]
    assert lines[3]["status"]["code"] == 403
    assert "disk" in lines[3]["status"]["message"]


@pytest.mark.parametrize("per", ["Service", "Namespace"])
def test_a_pod_above_a_whole_limit_on_live_pods_is_denied(per: str) -> None:
    quota = f"quota: {{per: {per}, standing: {{hard: {{pods: 5, cpu: 2}}, surge: 0}}}}"
    Path("policy.yaml").write_text(policy_text(f"- {{name: web, match: {{namespaces: [shop]}}, {quota}}}\n"))
    fitting, large = review(pod(cpu=2), pod(cpu=3))
    assert (fitting["decision"], large["decision"]) == ("Admit", "Deny")
    assert "cpu live at one time: hard 2, used 0, asked 3" in large["status"]["message"]


def test_lists_and_documents_give_one_line_per_object_in_order() -> None:
    listed = {"kind": "List", "items": [pod(), {"kind": "PodList", "items": [pod("elsewhere")]}, make_owned("Job")]}
    typed = {"kind": "DeploymentList", "items": [{key: make_owned("Deployment")[key] for key in ("metadata", "spec")}]}
    lines = review(listed, "", "# nothing but a comment", typed)
    assert [line["decision"] for line in lines] == ["Admit", "Unmatched", "Admit", "Admit"]


def test_object_without_pods_is_skipped_and_named() -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "Service", "metadata": {"name": "s"}}, pod(), {"kind": "X"}]})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert (done.code, len(done.lines)) == (0, 1)
    assert done.err.splitlines() == [
        "note: -: items[0]: Service s: not handled by Podgate: makes no Pods",
        "note: -: items[2]: X: not handled by Podgate: makes no Pods",
        "1 reviewed: Admit 1; 2 not handled",
    ]


def test_encoding_timestamps_and_nulls_are_read_like_kubectl() -> None:
    text = (
        "kind: Deployment\r\nmetadata: {name: web, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}\r\n"
        "spec:\r\n  selector: {matchLabels: {app: web}}\r\n"
        "  template:\r\n    metadata: {creationTimestamp: null, labels: {app: web}, annotations: {1: x}}\r\n"
        "    spec: {containers: [{name: c, image: i}], initContainers: null,"
        " nodeSelector: null, tolerations: null, affinity: null}\r\n"
    )
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=b"\xef\xbb\xbf" + text.encode())
    (line,) = done.lines
    assert (line["decision"], line["pod"]["spec"]["nodeSelector"]) == ("Admit", {"disk": "ssd"})
    assert line["pod"]["metadata"]["annotations"]["1"] == "x"
    (dated,) = review(
        "kind: Pod\nmetadata: {name: p, creationTimestamp: 2024-01-01T00:00:00Z}\n"
        "spec: {containers: [{name: c, image: i}]}"
    )
    assert dated["pod"]["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"


def test_null_is_the_zero_value_of_its_field() -> None:
    given = pod(tolerations=[{"key": "a", "operator": "Exists", "value": None}], nodeName=None)
    given["metadata"] |= {"generateName": None, "labels": {"app": "web", "version": None}}
    (line,) = review({**given, "status": None})
    assert line["decision"] == "Admit"
    assert line["pod"]["metadata"]["labels"] == {"app": "web", "version": "", "podgate.io/service": "web"}
    assert line["pod"]["spec"]["tolerations"] == [{"key": "a", "operator": "Exists"}]


def test_template_without_metadata_makes_a_pod_without_labels() -> None:
    job = make_owned("Job")
    del job["spec"]["template"]["metadata"]
    (line,) = review(job)
    assert line["decision"] == "Unmatched"


def test_recorded_create_passes_both_halves_without_charges() -> None:
    (line,) = review(make_recorded("CREATE", object=pod()))
    assert (line["decision"], line["pod"]["spec"]["nodeSelector"]) == ("Admit", {"disk": "ssd"})
    twice = review(
        *[make_recorded("CREATE", object={**pod(), "metadata": {**pod()["metadata"], "uid": uid}}) for uid in "ab"]
    )
    assert [line["decision"] for line in twice] == ["Admit", "Admit"], "nothing is charged, whatever the record says"
    (line,) = review(make_recorded("CREATE", object=pod(cpu=4)))
    assert (line["decision"], line["status"]["code"]) == ("Deny", 429)


def test_recorded_update_delete_and_subresource_are_judged_as_such() -> None:
    tampered = pod()
    tampered["metadata"]["labels"] = {"app": "web", "podgate.io/service": "other"}
    deleted, bound, updated, guarded, foreign = review(
        make_recorded("DELETE", object=None, oldObject=pod()),
        make_recorded("CREATE", subResource="binding", object={"kind": "Binding", "metadata": {"name": "p"}}),
        make_recorded("UPDATE", object=LABELLED, oldObject=LABELLED),
        make_recorded("UPDATE", object=tampered, oldObject=LABELLED),
        make_recorded(
            "CREATE", resource={"group": "", "version": "v1", "resource": "secrets"}, object=make_owned("Job")
        ),
    )
    assert (deleted["decision"], deleted["pod"]) == ("Unmatched", {})
    assert bound["decision"] == "Unmatched"
    assert (updated["decision"], updated["patch"]) == ("Admit", [])
    assert (guarded["decision"], guarded["status"]["code"]) == ("Deny", 403)
    assert (foreign["decision"], foreign["pod"]) == ("Unmatched", {})


def test_recorded_workload_review_gives_advice() -> None:
    deployments = {"group": "apps", "version": "v1", "resource": "deployments"}
    wrong = make_owned("Deployment")
    wrong["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "hdd"}
    (line,) = review(make_recorded("CREATE", resource=deployments, object=wrong))
    assert (line["decision"], line["patch"], line["pod"]) == ("Admit", [], {})
    [warning] = line["warnings"]
    assert warning.startswith("PlacementConflict: Pods of deployment.apps/")
    assert "will be denied: service web: spec.nodeSelector[disk] is 'hdd'" in warning


LABELLED = pod()
LABELLED["metadata"]["labels"] = {"app": "web", "podgate.io/service": "web"}

BAD = {
    "": "no object in it",
    "---\n---\n": "no object in it",
    "kind: [": "a value or a closing bracket is missing",
    "kind: Pod\n\tx: 1": "line 2, column 1: a tab cannot indent YAML: use spaces",
    "a: &a [*a]": "not YAML",
    "? [1]\n: 2": "a key must be plain text",
    "just words": "an object without a kind",
    "- kind: Pod": "an object without a kind",
    "{kind: 7}": "an object without a kind",
    "{kind: Pod}": "Pod: metadata is missing",
    "{kind: Pod, metadata: []}": "Pod: metadata: []: expected a mapping",
    "{kind: Pod, metadata: {name: p}}": "Pod default/p: spec is missing",
    "{kind: Pod, metadata: {name: p, labels: x}, spec: {}}": 'metadata.labels: "x": expected a mapping',
    "{kind: Pod, metadata: {name: p, labels: {a: true}}, spec: {}}": "metadata.labels[a]: true: expected a string",
    "{kind: Job, metadata: {name: j}}": "Job default/j: spec is missing",
    "{kind: Job, metadata: {name: j}, spec: {template: [x]}}": 'spec.template: ["x"]: expected a mapping',
    "{kind: Job, metadata: {name: j}, spec: {template: {metadata: {}}}}": "Job default/j: spec.template.spec is",
    "{kind: Job, metadata: {name: j}, spec: {template: {metadata: x, spec: {}}}}": 'template.metadata: "x": expected',
    "{kind: Pod, metadata: {name: p}, spec: {containers: [null]}}": "spec.containers[0]: null: expected a mapping",
    "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: }]}}": "spec.containers[0].name: required",
    "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}, limits:"
    " {cpu: }}}]}}": "resources.requests[cpu]: 1 is above the limit of 0",
    "{kind: List, items: 7}": "List: items: 7: expected a list",
    "{kind: List, items: null}": "no object in it",
    "{kind: List, items: [7]}": "an object without a kind",
    "{kind: AdmissionReview}": "expected 'admission.k8s.io/v1'",
    "{kind: AdmissionReview, apiVersion: admission.k8s.io/v1}": "request is missing",
    "{kind: AdmissionReview, apiVersion: admission.k8s.io/v1, request: x}": 'request: "x": expected a mapping',
    json.dumps(make_recorded("CREATE")): "request.object is missing",
    json.dumps(
        make_recorded("CREATE", object={"metadata": None})
    ): "AdmissionReview r1: request.object.metadata: null: expected a mapping",
    json.dumps(make_recorded("UPDATE", object=LABELLED)): "request.oldObject is missing",
    json.dumps(make_recorded("CREATE", namespace="team-a", object=pod("team-a"))): "labels of Namespace 'team-a'",
    json.dumps(pod("team-a")): "labels of Namespace 'team-a', which are not known here: give them with --namespaces",
}


@pytest.mark.parametrize(("text", "reason"), BAD.items(), ids=[key[:50] or "empty" for key in BAD])
def test_bad_input_is_one_line_and_exit_2(text: str, reason: str) -> None:
    assert reason in check_refused(text)


@pytest.mark.parametrize("name", ["nowhere.yaml", "empty"])
def test_unreadable_file_is_named(name: str) -> None:
    for arguments in ([name, "--policy", "policy.yaml"], ["pod.yaml", "--policy", name]):
        Path("pod.yaml").write_text(json.dumps(pod()))
        Path("empty").mkdir(exist_ok=True)
        done = podgate("review", *arguments)
        assert done.code == 2
        assert done.error.startswith(f"{name}: ")


def test_utf_16_file_error_says_how_to_save_it() -> None:
    Path("pod.yaml").write_text(json.dumps(pod()), "utf-16")
    done = podgate("review", "pod.yaml", "--policy", "policy.yaml")
    assert (done.code, done.error) == (2, "pod.yaml: not UTF-8: save the file as UTF-8")


def test_bad_policy_is_reported_in_full() -> None:
    Path("bad.yaml").write_text(POLICY.replace("match:", "mach:"))
    done = podgate("review", "-", "--policy", "bad.yaml", stdin=json.dumps(pod()))
    first, *problems = done.err.splitlines()
    assert done.code == 2
    assert first == f"error: bad.yaml: {len(problems)} mistakes in the policy: fix what is listed here"
    assert len(problems) >= 2
    assert all(problem.startswith("  bad.yaml:") for problem in problems)


NAMESPACES = {
    "plain": "team-a: {tier: prod, owner: }\nteam-b: {}\nteam-c: null\n",
    "objects": json.dumps(
        {
            "kind": "List",
            "items": [
                {"kind": "Namespace", "metadata": {"name": "team-a", "labels": {"tier": "prod", "owner": None}}},
                {"kind": "Namespace", "metadata": {"name": "team-b"}},
            ],
        }
    )
    + "\n---\n{kind: Namespace, metadata: {name: team-c, labels: null}}\n",
}


@pytest.mark.parametrize("form", NAMESPACES)
def test_namespace_labels_are_read_from_either_form(form: str) -> None:
    Path("namespaces.yaml").write_text(NAMESPACES[form])
    lines = review(pod("team-a"), pod("team-b"), pod("team-c"), more=("--namespaces", "namespaces.yaml"))
    assert [line["service"] for line in lines] == ["teams", None, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    {
        "[]": "not a mapping",
        "team-a: 7": "team-a: labels: 7: not a mapping",
        "team-a: {tier: true}": "team-a: tier: True: a label's value is a string: quote it",
        "{kind: Namespace}": "metadata is missing",
        "{kind: Namespace, metadata: {labels: {}}}": "a Namespace without metadata.name",
        "{kind: NamespaceList, items: 7}": "items: 7: not a list",
        "{kind: List, items: [7]}": "metadata is missing",
        "{kind: Pod, metadata: {name: p}}": "Pod p: not a Namespace",
        "{": "a value or a closing bracket is missing",
    }.items(),
)
def test_bad_namespaces_file_is_named(text: str, reason: str) -> None:
    Path("namespaces.yaml").write_text(text)
    error = check_refused(json.dumps(pod("team-a")), "--namespaces", "namespaces.yaml")
    assert error.startswith("namespaces.yaml: ")
    assert reason in error


def review_as(form: str, *documents: Json, explain: bool = False) -> tuple[str, str]:
    text = "\n---\n".join(map(json.dumps, documents))
    more = ["--explain"] if explain else []
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", form, *more, stdin=text)
    return done.out, done.err


def test_diff_shows_changes_and_names_each_object() -> None:
    out, _ = review_as("diff", pod(), make_owned("DaemonSet"), pod(cpu=4))
    assert "\n+  schedulerName: podgate-scheduler" in out
    assert "# Pod shop/p: Admit (service web)\n" in out
    assert "# DaemonSet shop/web: Exempt (by daemonSet)\n" in out
    assert "# Pod shop/p: Deny (service web)\n# 429 TooManyRequests: QuotaExceeded: " in out
    assert "uid" not in out
    assert "\x1b" not in out, "no colours where there is no terminal"


def test_patch_and_yaml_give_the_same_result() -> None:
    line = json.loads(review_as("patch", pod())[0])
    assert {"op": "add", "path": "/spec/schedulerName", "value": "podgate-scheduler"} in line["patch"]
    Path("result.yaml").write_text(review_as("yaml", pod())[0])
    assert json.loads(review_as("patch", pod())[0]) == line
    done = podgate("review", "result.yaml", "--policy", "policy.yaml", "-o", "patch")
    (again,) = done.lines
    assert [operation["path"] for operation in again["patch"]] == [
        "/metadata/labels/podgate.io~1service",
        "/metadata/annotations",
    ], "only what is Podgate's own"


def test_patch_line_names_its_object_and_verdict() -> None:
    out, _ = review_as("patch", pod(), make_owned("Job", cpu=4), pod(nodeSelector={"disk": "hdd"}))
    lines = [json.loads(line) for line in out.splitlines()]
    assert [list(line) for line in lines] == [[*HEADING, "decision", "allowed", "status", "patch"]] * 3
    assert [tuple(line[key] for key in HEADING) for line in lines] == [
        ("-", "document 1", "Pod", "shop", "p"),
        ("-", "document 2", "Job", "shop", "web"),
        ("-", "document 3", "Pod", "shop", "p"),
    ]
    assert [(line["decision"], line["allowed"], line["status"]["code"]) for line in lines] == [
        ("Admit", True, 200),
        ("Deny", False, 429),
        ("Deny", False, 403),
    ]


def test_pod_with_a_node_name_is_denied_unless_read_from_a_cluster() -> None:
    """In `kubectl get -o yaml`, the node is the scheduler's choice."""
    (line,) = review(pod(nodeName="node-1"))
    assert (line["decision"], line["status"]["message"].partition(":")[0]) == ("Deny", "NodeNameSet")
    (line,) = review({**pod(nodeName="node-1"), "status": {"phase": "Running"}})
    assert line["decision"] == "Admit"
    (line,) = review({**pod(nodeName="node-1"), "status": {}})
    assert line["decision"] == "Deny"


def test_warnings_are_shown() -> None:
    Path("namespaces.yaml").write_text("team-a: {tier: prod}")
    (line,) = review(pod("team-a"), more=("--namespaces", "namespaces.yaml"))
    assert (line["decision"], line["patch"][0]["path"]) == ("Admit", "/metadata/labels/podgate.io~1service")
    (warning,) = line["warnings"]
    assert warning.startswith("WouldRewrite: service ")
    assert "spec.nodeSelector" in warning


@pytest.mark.parametrize("form", ["diff", "yaml"])
def test_explain_shows_findings_by_stage(form: str) -> None:
    out, _ = review_as(form, pod(), explain=True)
    assert "#   mutate   own      service web\n" in out
    assert "#   validate charge   not charged (dry run)\n" in out


OURS = ("metadata.labels[podgate.io/service]", "metadata.annotations[podgate.io/policy-hash]")


def test_explain_writes_to_stderr_beside_patch_lines() -> None:
    plain, _ = review_as("patch", pod())
    out, err = review_as("patch", pod(), explain=True)
    assert out == plain
    assert "#   validate charge   not charged (dry run)\n" in err


def test_explain_adds_reasons_to_the_trace_of_json_lines() -> None:
    (plain,) = map(json.loads, review_as("json", pod(nodeSelector={"disk": "hdd"}))[0].splitlines())
    (line,) = map(json.loads, review_as("json", pod(nodeSelector={"disk": "hdd"}), explain=True)[0].splitlines())
    assert {key: value for key, value in line.items() if key != "trace"} == {
        key: value for key, value in plain.items() if key != "trace"
    }
    assert [entry for entry in line["trace"] if entry in plain["trace"]] == plain["trace"]
    assert [tuple(entry.values()) for entry in line["trace"] if entry not in plain["trace"]] == [
        (
            "mutate",
            "rewrite",
            f"service: {', '.join(OURS)}",
        ),
        ("mutate", "rewrite", "placement.schedulerName: spec.schedulerName"),
        (
            "mutate",
            "rewrite",
            "placement.nodeSelector[disk]: left hdd: the validating half denies it (onConflict Deny)",
        ),
        ("validate", "check", "placement.schedulerName: holds"),
        ("validate", "check", "placement.nodeSelector[disk]: PlacementConflict at spec.nodeSelector[disk]"),
    ]


@pytest.mark.parametrize("form", ["diff", "json"])
def test_clamp_warning_names_the_container(form: str) -> None:
    Path("policy.yaml").write_text(RANGED.replace("container:", "whenOutside: Clamp, container:"))
    given = make_owned("Deployment")
    container = {"name": "vllm", "image": "i", "resources": {"limits": {"memory": "10Gi"}}}
    given["spec"]["template"]["spec"]["containers"] = [container]
    out, _ = review_as(form, given, explain=True)
    warning = 'container "vllm": limits.memory 10Gi lowered to 8Gi (resources.container.max, whenOutside Clamp)'
    assert warning in (json.loads(out)["warnings"][0] if form == "json" else out)
    assert "/spec/" not in out.partition("#   mutate   rewrite")[2]


def test_explain_lists_every_rule_by_stage() -> None:
    out, _ = review_as("diff", pod(nodeSelector={"disk": "hdd"}), explain=True)
    (denial,) = [line.removeprefix("# 403 Forbidden: ") for line in out.splitlines() if "# 403" in line]
    explanation = out[out.index("#   mutate   rewrite") :].splitlines()
    assert explanation == [
        "#   mutate   rewrite  3 operations",
        f"#     + service                       {', '.join(OURS)}",
        "#     + placement.schedulerName       spec.schedulerName",
        "#     ! placement.nodeSelector[disk]  left hdd: the validating half denies it (onConflict Deny)",
        "#   validate own      service web",
        f"#   validate check    Enforce: {denial}",
        "#     ! placement.nodeSelector[disk]  PlacementConflict at spec.nodeSelector[disk]",
        "#     = 1 of 2 rules hold",
    ]


def test_recorded_pod_with_server_fields_is_explained_as_new() -> None:
    """The class is replaced, and its priority is set again between the two halves."""
    Path("policy.yaml").write_text(POLICY.replace("nodeSelector: {disk: ssd}}", "priorityClassName: high}", 1))
    given = pod(priorityClassName="default", priority=7)
    given["metadata"] |= {"uid": "u", "managedFields": [{"fieldsV1": {"f:spec": {"f:containers": {}}}}]}
    (line,) = review(make_recorded("CREATE", object=given), more=("--explain",))
    assert (line["decision"], line["pod"]["spec"]["priorityClassName"]) == ("Admit", "high")
    assert "priority" not in line["pod"]["spec"]
    assert "placement.priorityClassName: holds" in [entry["found"] for entry in line["trace"]]


def test_explain_shows_the_qos_class_change() -> None:
    Path("policy.yaml").write_text(
        POLICY.replace("placement:", "resources: {container: {max: {cpu: 1}}}, placement:", 1)
    )
    out, _ = review_as("diff", pod(), explain=True)
    findings = [line.removeprefix("#   mutate   rewrite  ") for line in out.splitlines() if "mutate   rewrite" in line]
    assert findings == ["QoS class: BestEffort to Burstable", "5 operations"]


def test_exempt_or_unchanged_object_has_no_explanation() -> None:
    (line,) = review(make_recorded("UPDATE", object=LABELLED, oldObject=LABELLED), more=("--explain",))
    (plain,) = review(make_recorded("UPDATE", object=LABELLED, oldObject=LABELLED))
    assert line == plain
    out, _ = review_as("diff", make_owned("DaemonSet"), explain=True)
    assert out.endswith("#   validate own      exempt by daemonSet\n")


def test_removed_label_has_its_reason_beside_it() -> None:
    forged = pod("elsewhere")
    forged["metadata"]["labels"] = {"a": "b", "podgate.io/service": "web"}
    out, _ = review_as("diff", forged)
    reason = "# no service owns this Pod, and the label must not claim one"
    assert f"-    podgate.io/service: web  {reason}\n" in out


def test_objects_are_separated_by_an_empty_line() -> None:
    out, _ = review_as("diff", pod(), pod("elsewhere"), pod())
    assert out.count("\n\n") == 2
    assert not out.startswith("\n")
    assert "\n\n# Pod elsewhere/p: Unmatched\n\n--- Pod shop/p\n" in out


def test_default_form_is_the_diff_without_a_terminal() -> None:
    Path("pod.yaml").write_text(json.dumps(pod()))
    done = run_installed("review", "pod.yaml", "--policy", "policy.yaml")
    chosen = run_installed("review", "pod.yaml", "--policy", "policy.yaml", "-o", "diff")
    assert (done.code, done.out) == (0, chosen.out)
    assert done.out.startswith("--- Pod shop/p\n+++ Pod shop/p (rewritten)\n")
    assert "\x1b" not in done.out


def test_exponentially_expanding_file_is_refused(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("kind: Pod\nl0: &l0 [x]\n" + levels)
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = podgate("review", bomb, "--policy", tmp_path / "policy.yaml")
    assert done.code == 2
    assert "expands to more than 1000000 values" in done.err


def test_namespace_option_applies_to_objects_without_namespace(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    manifest = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"
    judged = {}
    for options in ((), ("-n", "shop")):
        done = podgate("review", "-", "--policy", tmp_path / "policy.yaml", "-o", "json", *options, stdin=manifest)
        judged[options] = done.lines[0]["pod"]["metadata"]["namespace"]
    assert judged == {(): "default", ("-n", "shop"): "shop"}


def test_errors_do_not_hide_other_objects(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(pod()))
    bad = pod(tolerations=[{"key": "a", "tolerationSeconds": "soon"}])
    listed = {"kind": "List", "items": [pod(), make_owned("Job"), {"kind": "Job", "metadata": {"name": "j"}}]}
    text = "\n---\n".join(map(json.dumps, (pod(), bad, listed)))
    done = podgate("review", "-", "nowhere.yaml", other, "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert done.code == 2
    assert [line["decision"] for line in done.lines] == ["Admit"] * 4
    field = "spec.tolerations[0].tolerationSeconds"
    assert done.err.splitlines() == [
        f'error: -: document 2: Pod shop/p: {field}: "soon": expected a whole number: fix its type',
        "error: -: document 3: items[2]: Job default/j: spec is missing: give the whole object",
        "error: nowhere.yaml: cannot be read: No such file or directory: give a readable file",
        "4 reviewed: Admit 4; 3 in error",
    ]


def test_syntax_error_has_document_line_and_column() -> None:
    error = check_refused("kind: Pod\n---\nkind: [\n  Pod: }\n")
    assert error.startswith("-: document 2: line 4, column 8: a value or a closing bracket is missing: write it")
    for text in ("[" * 1500, TOO_DEEP, f"a: {TOO_DEEP}"):
        assert check_refused(text) == "-: not YAML: nested too deeply: flatten it"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            {"apiVersion": "batch.example.com/v1", "kind": "Job"},
            "batch.example.com/v1 is not Kubernetes' own",
        ),
        ({"apiVersion": "example.com/v1", "kind": "Rollout"}, "not one of Kubernetes' own kinds"),
        (
            {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"},
            "not one of Kubernetes' own kinds",
        ),
        ({"apiVersion": "apps/v1", "kind": "ControllerRevision"}, "makes no Pods"),
        ({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}, "makes no Pods"),
    ],
)
def test_foreign_kinds_are_not_taken_for_kubernetes_kinds(document: Json, reason: str) -> None:
    text = json.dumps({"kind": "List", "items": [document, pod()]})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert (done.code, len(done.lines)) == (0, 1)
    assert reason in done.err


@pytest.mark.parametrize(
    ("kind", "written", "served"),
    [
        ("Deployment", "extensions/v1beta1", "apps/v1"),
        ("Deployment", "apps/v1beta2", "apps/v1"),
        ("Deployment", "v1", "apps/v1"),
        ("CronJob", "batch/v1beta1", "batch/v1"),
        ("PodTemplate", "apps/v1", "v1"),
    ],
)
def test_unserved_api_version_names_the_served_one(kind: str, written: str, served: str) -> None:
    error = check_refused(json.dumps({**make_owned(kind), "apiVersion": written}))
    assert error == f"-: {kind}: apiVersion: {written}: no API server serves it: write {served}"


def test_single_rule_is_worded_in_the_singular() -> None:
    rule = "- {name: web, match: {namespaces: [shop]}, placement: {nodeSelector: {disk: ssd}}}\n"
    Path("policy.yaml").write_text(policy_text(rule))
    assert "= the one rule holds\n" in review_as("diff", pod(), explain=True)[0]
    assert "= the one rule does not hold\n" in review_as("diff", pod(nodeSelector={"disk": "hdd"}), explain=True)[0]


def test_control_characters_of_a_name_are_escaped() -> None:
    strange = pod()
    strange["metadata"]["name"] = "p\x1b[31m\n\x07"
    out, _ = review_as("diff", strange)
    assert {"\x1b", "\x07"}.isdisjoint(out)
    assert "# Pod shop/p\\x1b[31m\\x0a\\x07: Admit (service web)\n" in out


TERM = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}], "matchFields": []}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}
NEAR = {"topologyKey": "zone", "labelSelector": SELECTOR, "namespaces": ["n"], "matchLabelKeys": ["k"]}
WHOLE = {
    "schedulerName": "s",
    "nodeSelector": {"a": "b"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}],
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": NEAR}]
        },
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    ],
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}],
    "priorityClassName": "p",
    "priority": 1,
    "preemptionPolicy": "Never",
    "runtimeClassName": "r",
    "overhead": {"cpu": "1"},
    "resources": {"requests": {"cpu": "1"}},
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}],
    "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
}
GARBAGE = [None, True, 7, 1.5, "", "x", [], {}, [None], [7], [[]], {"a": None}, {"a": 7}, {"a": "\x1b["}, 2**70]


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def insert_garbage(spec: Json, path: tuple[str | int, ...], garbage: object) -> Json:
    changed: Any = json.loads(json.dumps(spec))
    holder = changed
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = garbage
    return changed


def test_garbage_in_a_scheduling_field_is_one_line_with_object_and_field() -> None:
    cases = [(path, garbage) for path in places(WHOLE) for garbage in GARBAGE]
    template_at = ("spec", "template", "spec")
    items = [insert_garbage(make_owned("Deployment"), template_at, insert_garbage(WHOLE, *case)) for case in cases]
    text = json.dumps({"kind": "List", "items": items})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert done.code == 2
    assert TRACE not in done.err
    assert "\x1b" not in done.err
    *errors, summary = done.err.splitlines()
    assert len(errors) + len(done.lines) == len(cases)
    assert summary.endswith(f"; {len(errors)} in error")
    assert len(errors) > len(cases) / 2, "most cases are invalid"
    for error in errors:
        found = re.match(r"error: -: items\[(\d+)\]: Deployment shop/web: spec\.template\.spec\.", error)
        assert found, error
        (first, *steps), garbage = cases[int(found[1])]
        if garbage is None and "limits" in steps:
            steps = ["requests" if step == "limits" else step for step in steps]  # they are above the limit of 0
        field = str(first) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
        of_a_map = re.sub(rf"\.({MAPS})\.(\w+)$", r".\1[\2]", f".{field}")
        assert error[found.end() :].startswith(of_a_map[1:])


MAPS = "nodeSelector|matchLabels|requests|limits|overhead"


def test_unreadable_amount_is_located_in_its_container() -> None:
    strange = pod()
    strange["spec"]["initContainers"] = [{"name": "i"}, {"name": "j", "resources": {"limits": {"cpu": "a lot"}}}]
    error = check_refused(json.dumps(strange))
    assert error == (
        "-: Pod shop/p: spec.initContainers[1].resources.limits[cpu]: 'a lot': not a Kubernetes quantity:"
        " write a number with an optional suffix, such as 500m, 4 or 16Gi"
    )


@pytest.mark.parametrize(
    ("amount", "complaint"),
    [
        (
            "16 Gi",
            "'16 Gi': not a Kubernetes quantity: write a number with an optional suffix, such as 500m, 4 or 16Gi",
        ),
        (-1, "'-1': a quantity must not be negative: write a number from 0"),
        (True, "true: expected an amount: write a number with an optional suffix, such as 500m, 4 or 16Gi"),
    ],
)
def test_unreadable_amount_in_a_range_names_field_and_remedy(amount: object, complaint: str) -> None:
    Path("policy.yaml").write_text(RANGED)
    strange = make_owned("Job")
    template = strange["spec"]["template"]["spec"]
    template["containers"].append({"name": "d", "resources": {"limits": {"memory": amount}}})
    error = check_refused(json.dumps(strange))
    assert error == f"-: Job shop/web: spec.template.spec.containers[1].resources.limits[memory]: {complaint}"


@pytest.mark.parametrize("amount", ["1e100", "1e300", "1e308", "1e309", "9007199254740993.5", "10e9999999"])
def test_bare_number_of_any_size_is_judged_as_written(amount: str) -> None:
    Path("policy.yaml").write_text(RANGED)
    text = json.dumps(
        {**pod(), "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "@"}}}]}}
    )
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text.replace('"@"', amount))
    assert done.code == 3, done.err
    (line,) = done.lines
    assert "limits[memory] is" in line["status"]["message"]
    if "." in amount:
        assert line["pod"]["spec"]["containers"][0]["resources"]["requests"] == {"memory": amount}


def test_namespace_labels_are_not_needed_if_an_earlier_service_owns_the_pod() -> None:
    Path("policy.yaml").write_text(
        policy_text(
            "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}}\n"
            "- {name: prod, match: {namespaceSelector: {matchLabels: {tier: prod}}}}\n"
        )
    )
    (line,) = review(pod())
    assert (line["decision"], line["service"]) == ("Admit", "web")
    assert "labels of Namespace 'elsewhere', which are not known here" in check_refused(json.dumps(pod("elsewhere")))


@pytest.mark.parametrize("name", ["Shop", "a.b", "-a", "a" * 64, "", "a b", "ä", "a\n"])
def test_impossible_namespace_is_refused(name: str) -> None:
    assert check_refused(json.dumps(pod()), "-n", name).startswith(
        f"--namespace: {name!r}: not a DNS-1123 label: give "
    )


def test_an_object_that_the_api_server_would_reject_is_an_error_beside_the_others() -> None:
    above = pod()
    above["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    unselected = make_owned("Deployment")
    unselected["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    text = "\n---\n".join(json.dumps(document) for document in (above, unselected, pod()))
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert (done.code, len(done.lines)) == (2, 1)
    first, second, _ = done.err.splitlines()
    assert first == (
        "error: -: document 1: Pod shop/p: spec.containers[0].resources.requests[cpu]: 2 is above the limit of 1:"
        " lower the request, or raise the limit"
    )
    assert second == (
        "error: -: document 2: Deployment shop/web: spec.selector.matchLabels[app]: 'other', and the label of the"
        " template is 'web': write the same in both"
    )
