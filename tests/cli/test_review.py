import json
from pathlib import Path

import pytest

from tests.cli.running import Json, installed, podgate, policy_text

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}},"
    " placement: {schedulerName: podgate-scheduler, nodeSelector: {disk: ssd}},"
    " quota: {windows: [{window: 1m, hard: {pods: 1, cpu: 1}}]}}\n"
    '- {name: teams, match: {namespaces: ["team-*"], namespaceSelector: {matchLabels: {tier: prod}}},'
    " modes: {placement: Warn}, placement: {nodeSelector: {disk: ssd}}}\n"
)
KEYS = ["decision", "allowed", "status", "warnings", "patch", "pod", "service", "trace"]


def template(cpu: int | None = None) -> Json:
    requests = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", **requests}]}}


def owned(kind: str, namespace: str = "shop", cpu: int | None = None) -> Json:
    spec: Json = {"template": template(cpu)}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "web", "namespace": namespace}, "spec": spec}


def pod(namespace: str = "shop", cpu: int | None = None, **spec: object) -> Json:
    made = template(cpu)
    made["spec"] |= spec
    made["metadata"] |= {"name": "p", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def recorded(operation: str, **request: object) -> Json:
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


def refused(text: str, *more: str) -> str:
    done = podgate("review", "-", "--policy", "policy.yaml", *more, stdin=text)
    assert (done.code, done.out) == (2, "")
    return done.error


WORKLOADS = ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "CronJob"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_workload_is_judged_by_the_pod_that_it_makes(kind: str) -> None:
    (line,) = review(owned(kind))
    assert list(line) == KEYS
    assert (line["decision"], line["allowed"], line["status"], line["service"]) == ("Admit", True, {"code": 200}, "web")
    assert line["pod"]["spec"]["schedulerName"] == "podgate-scheduler"
    assert line["pod"]["metadata"]["generateName"] == "web-"
    assert {"uid", "name"}.isdisjoint(line["pod"]["metadata"]), "what only stands in for the API server's is not shown"
    assert {step["half"] for step in line["trace"]} == {"mutate", "validate"}


def test_a_daemon_set_is_exempt_and_pods_of_nobody_are_unmatched() -> None:
    lines = review(owned("DaemonSet"), pod("elsewhere"), pod("kube-system"))
    assert [(line["decision"], line["service"], line["patch"]) for line in lines] == [
        ("Exempt", None, []),
        ("Unmatched", None, []),
        ("Exempt", None, []),
    ]


def test_a_denial_says_why_and_nothing_is_charged_in_between() -> None:
    lines = review(pod(), pod(), owned("Job", cpu=4), pod(nodeSelector={"disk": "hdd"}))
    assert [line["decision"] for line in lines] == ["Admit", "Admit", "Deny", "Deny"]
    assert (lines[2]["status"]["code"], lines[2]["status"]["reason"]) == (429, "TooManyRequests")
    assert "can never pass" in lines[2]["status"]["message"]
    assert lines[3]["status"]["code"] == 403
    assert "disk" in lines[3]["status"]["message"]


def test_lists_and_documents_give_one_line_an_object_in_order() -> None:
    listed = {"kind": "List", "items": [pod(), {"kind": "PodList", "items": [pod("elsewhere")]}, owned("Job")]}
    typed = {"kind": "DeploymentList", "items": [{key: owned("Deployment")[key] for key in ("metadata", "spec")}]}
    lines = review(listed, "", "# nothing but a comment", typed)
    assert [line["decision"] for line in lines] == ["Admit", "Unmatched", "Admit", "Admit"]


def test_what_makes_no_pods_is_left_out_and_named() -> None:
    text = json.dumps({"kind": "List", "items": [{"kind": "Service", "metadata": {"name": "s"}}, pod(), {"kind": "X"}]})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert (done.code, len(done.lines)) == (0, 1)
    assert "note: -: Service default/s: makes no Pods" in done.err
    error = refused('{"kind": "Service", "metadata": {"name": "s"}}')
    assert "Service default/s: makes no Pods: give one of Pod, Deployment" in error


def test_byte_order_mark_line_ends_timestamps_and_nulls_are_read_as_kubectl_reads_them() -> None:
    text = (
        "kind: Deployment\r\nmetadata: {name: web, namespace: shop, creationTimestamp: 2024-01-01T00:00:00Z}\r\n"
        "spec:\r\n  template:\r\n    metadata: {creationTimestamp: null, labels: {app: web}, annotations: {1: x}}\r\n"
        "    spec: {containers: null, nodeSelector: null, tolerations: null, affinity: null}\r\n"
    )
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=b"\xef\xbb\xbf" + text.encode())
    (line,) = done.lines
    assert (line["decision"], line["pod"]["spec"]["nodeSelector"]) == ("Admit", {"disk": "ssd"})
    assert line["pod"]["metadata"]["annotations"]["1"] == "x"
    (dated,) = review("kind: Pod\nmetadata: {name: p, creationTimestamp: 2024-01-01T00:00:00Z}\nspec: {}")
    assert dated["pod"]["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"


def test_a_template_without_metadata_makes_a_pod_without_labels() -> None:
    job = owned("Job")
    del job["spec"]["template"]["metadata"]
    (line,) = review(job)
    assert line["decision"] == "Unmatched"


def test_a_recorded_create_goes_through_both_halves() -> None:
    (line,) = review(recorded("CREATE", object=pod()))
    assert (line["decision"], line["pod"]["spec"]["nodeSelector"]) == ("Admit", {"disk": "ssd"})
    twice = review(
        *[recorded("CREATE", object={**pod(), "metadata": {**pod()["metadata"], "uid": uid}}) for uid in "ab"]
    )
    assert [line["decision"] for line in twice] == ["Admit", "Admit"], "nothing is charged, whatever the record says"
    (line,) = review(recorded("CREATE", object=pod(cpu=4)))
    assert (line["decision"], line["status"]["code"]) == ("Deny", 429)


def test_a_recorded_update_delete_or_subresource_is_judged_as_what_it_is() -> None:
    tampered = pod()
    tampered["metadata"]["labels"] = {"app": "web", "podgate.io/service": "other"}
    deleted, bound, updated, guarded, foreign = review(
        recorded("DELETE", object=None, oldObject=pod()),
        recorded("CREATE", subResource="binding", object={"kind": "Binding", "metadata": {"name": "p"}}),
        recorded("UPDATE", object=LABELLED, oldObject=LABELLED),
        recorded("UPDATE", object=tampered, oldObject=LABELLED),
        recorded("CREATE", resource={"group": "apps", "version": "v1", "resource": "deployments"}, object=owned("Job")),
    )
    assert (deleted["decision"], deleted["pod"]) == ("Unmatched", {})
    assert bound["decision"] == "Unmatched"
    assert (updated["decision"], updated["patch"]) == ("Admit", [])
    assert (guarded["decision"], guarded["status"]["code"]) == ("Deny", 403)
    assert foreign["decision"] == "Unmatched"


LABELLED = pod()
LABELLED["metadata"]["labels"] = {"app": "web", "podgate.io/service": "web"}

BAD = {
    "": "no object in it",
    "---\n---\n": "no object in it",
    "kind: [": "not YAML",
    "kind: Pod\n\tx: 1": "not YAML",
    "a: &a [*a]": "not YAML",
    "? [1]\n: 2": "not YAML",
    "just words": "an object without a kind",
    "- kind: Pod": "an object without a kind",
    "{kind: 7}": "an object without a kind",
    "{kind: Pod}": "Pod: metadata is missing or no mapping",
    "{kind: Pod, metadata: []}": "Pod: metadata is missing or no mapping",
    "{kind: Pod, metadata: {name: p}}": "Pod default/p: pod: Object missing required field `spec`",
    "{kind: Pod, metadata: {name: p, labels: x}, spec: {}}": "`$.metadata.labels`",
    "{kind: Pod, metadata: {name: p, labels: {a: true}}, spec: {}}": "Expected `str`, got `bool`",
    "{kind: Job, metadata: {name: j}}": "Job default/j: spec.template is missing or no mapping",
    "{kind: Job, metadata: {name: j}, spec: {template: [x]}}": "spec.template is missing or no mapping",
    "{kind: Job, metadata: {name: j}, spec: {template: {metadata: {}}}}": "template: spec is missing or no mapping",
    "{kind: Job, metadata: {name: j}, spec: {template: {metadata: x, spec: {}}}}": "template: metadata is missing",
    "{kind: List, items: 7}": "items: 7: not a list",
    "{kind: List, items: null}": "no object in it",
    "{kind: List, items: [7]}": "an object without a kind",
    "{kind: AdmissionReview}": "expected 'admission.k8s.io/v1'",
    "{kind: AdmissionReview, apiVersion: admission.k8s.io/v1}": "request is missing",
    "{kind: AdmissionReview, apiVersion: admission.k8s.io/v1, request: x}": "got `str` - at `$.request`",
    json.dumps(recorded("CREATE")): "request.object is missing",
    json.dumps(recorded("CREATE", object={"metadata": None})): "AdmissionReview.request.object",
    json.dumps(recorded("UPDATE", object=LABELLED)): "request.oldObject is missing",
    json.dumps(recorded("CREATE", namespace="team-a", object=pod("team-a"))): "labels of Namespace 'team-a'",
    json.dumps(pod("team-a")): "labels of Namespace 'team-a', which are not known here: give them with --namespaces",
}


@pytest.mark.parametrize(("text", "reason"), BAD.items(), ids=[key[:50] or "empty" for key in BAD])
def test_bad_input_is_one_line_and_exit_2(text: str, reason: str) -> None:
    assert reason in refused(text)


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_files_that_cannot_be_read_are_named(name: str) -> None:
    for arguments in ([name, "--policy", "policy.yaml"], ["pod.yaml", "--policy", name]):
        Path("pod.yaml").write_text(json.dumps(pod()))
        done = podgate("review", *arguments)
        assert done.code == 2
        assert done.error.startswith(f"{name}: ")


def test_a_bad_policy_is_told_whole() -> None:
    Path("bad.yaml").write_text(POLICY.replace("match:", "mach:"))
    done = podgate("review", "-", "--policy", "bad.yaml", stdin=json.dumps(pod()))
    first, *problems = done.err.splitlines()
    assert done.code == 2
    assert first == f"error: bad.yaml: {len(problems)} mistakes in the policy: mend what is listed here"
    assert len(problems) >= 2
    assert all(problem.startswith("  bad.yaml:") for problem in problems)


NAMESPACES = {
    "plain": "team-a: {tier: prod}\nteam-b: {}\nteam-c: null\n",
    "objects": json.dumps(
        {
            "kind": "List",
            "items": [
                {"kind": "Namespace", "metadata": {"name": "team-a", "labels": {"tier": "prod"}}},
                {"kind": "Namespace", "metadata": {"name": "team-b"}},
            ],
        }
    )
    + "\n---\n{kind: Namespace, metadata: {name: team-c, labels: null}}\n",
}


@pytest.mark.parametrize("form", NAMESPACES)
def test_labels_of_namespaces_come_from_either_form(form: str) -> None:
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
        "{": "not YAML",
    }.items(),
)
def test_bad_namespaces_are_named(text: str, reason: str) -> None:
    Path("namespaces.yaml").write_text(text)
    error = refused(json.dumps(pod("team-a")), "--namespaces", "namespaces.yaml")
    assert error.startswith("namespaces.yaml: ")
    assert reason in error


def shown(form: str, *documents: Json, explain: bool = False) -> tuple[str, str]:
    text = "\n---\n".join(map(json.dumps, documents))
    more = ["--explain"] if explain else []
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", form, *more, stdin=text)
    return done.out, done.err


def test_the_diff_shows_what_changes_and_names_each_object() -> None:
    out, _ = shown("diff", pod(), owned("DaemonSet"), pod(cpu=4))
    assert "+  schedulerName: podgate-scheduler\n" in out
    assert "# Pod shop/p: Admit (service web)\n" in out
    assert "# DaemonSet shop/web: Exempt (by daemonSet)\n" in out
    assert "# Pod shop/p: Deny (service web)\n# 429 TooManyRequests: QuotaExceeded: " in out
    assert "uid" not in out
    assert "\x1b" not in out, "no colours where there is no terminal"


def test_the_patch_applies_and_the_yaml_is_the_result() -> None:
    patch, _ = shown("patch", pod())
    assert {"op": "add", "path": "/spec/schedulerName", "value": "podgate-scheduler"} in json.loads(patch)
    Path("result.yaml").write_text(shown("yaml", pod())[0])
    again, _ = shown("patch", pod())
    assert again == patch
    done = podgate("review", "result.yaml", "--policy", "policy.yaml", "-o", "patch")
    assert (done.code, done.out) == (0, "[]\n"), "what was rewritten needs no further patch"


def test_warnings_are_shown() -> None:
    Path("namespaces.yaml").write_text("team-a: {tier: prod}")
    (line,) = review(pod("team-a"), more=("--namespaces", "namespaces.yaml"))
    assert (line["decision"], line["patch"][0]["path"]) == ("Admit", "/metadata/labels/podgate.io~1service")
    assert any("disk" in warning for warning in line["warnings"])


@pytest.mark.parametrize("form", ["diff", "yaml"])
def test_explain_says_stage_by_stage_what_was_found(form: str) -> None:
    out, _ = shown(form, pod(), explain=True)
    assert "#   mutate   own      service web\n" in out
    assert "#   validate charge   not charged (dry run)\n" in out


@pytest.mark.parametrize("form", ["json", "patch"])
def test_explain_keeps_lines_for_programs_as_they_are(form: str) -> None:
    plain, _ = shown(form, pod())
    out, err = shown(form, pod(), explain=True)
    assert out == plain
    assert "#   validate charge   not charged (dry run)\n" in err


def test_the_default_form_without_a_terminal_is_json() -> None:
    Path("pod.yaml").write_text(json.dumps(pod()))
    done = installed("review", "pod.yaml", "--policy", "policy.yaml")
    assert (done.code, list(done.lines[0])) == (0, KEYS)


def test_a_short_file_that_unfolds_without_end_is_refused(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("kind: Pod\nl0: &l0 [x]\n" + levels)
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = podgate("review", bomb, "--policy", tmp_path / "policy.yaml")
    assert done.code == 2
    assert "unfolds to more than 1000000 values" in done.err


def test_objects_without_a_namespace_are_judged_in_the_one_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    manifest = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"
    judged = {}
    for words in ((), ("-n", "shop")):
        done = podgate("review", "-", "--policy", tmp_path / "policy.yaml", *words, stdin=manifest)
        judged[words] = done.lines[0]["pod"]["metadata"]["namespace"]
    assert judged == {(): "default", ("-n", "shop"): "shop"}
