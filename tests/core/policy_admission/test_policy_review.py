from typing import Any

import msgspec
import pytest

from webhook.core.document import Purpose
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy_admission.policy_review import PolicyReview, judge

GOOD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- {name: a, match: {namespaces: [shop]}}\n"
BAD = GOOD.replace("name: a", "name: A_B").replace("kind: Policy", "kind: Polices")


def config_map(text: str | None, **more: Any) -> dict[str, Any]:
    data = {} if text is None else {"policy.yaml": text}
    return {"metadata": {"name": "podgate-policy", "namespace": "podgate-system"}, "data": data, **more}


def asked(**request: Any) -> PolicyReview:
    usual = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": config_map(GOOD),
        "oldObject": None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": usual | request}
    return judge(msgspec.json.encode(review))


def response(found: PolicyReview) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.json.decode(found.body)
    return dict(whole["response"])


def test_a_good_policy_is_admitted() -> None:
    found = asked()
    assert response(found) == {"uid": "review-1", "allowed": True}
    assert (found.judged, found.errors, found.user) == (True, (), "alice")


def test_a_bad_one_is_refused_with_every_line_and_column() -> None:
    found = asked(object=config_map(BAD))
    status = response(found)["status"]
    assert status["code"] == 400
    first, *lines = status["message"].splitlines()
    assert first.startswith("PolicyInvalid: the policy has 2 errors")
    assert lines[0].startswith("policy.yaml:2:7: kind: ")
    assert lines[1].startswith("policy.yaml:4:10: services[0].name: ")
    assert found.errors == tuple(lines)


def test_what_is_probably_not_meant_is_a_warning() -> None:
    text = GOOD.replace("{namespaces: [shop]}", "{anyNamespace: true}")
    [warning] = response(asked(object=config_map(text)))["warnings"]
    assert warning.startswith("policy.yaml:4:")


WEBHOOKS = "match, failureMode or exemptions changed: apply `podgate policy webhooks` to put all of it in force"


@pytest.mark.parametrize(
    ("new", "warned"),
    [
        (GOOD.replace("[shop]", "[shop, bank]"), [WEBHOOKS]),
        (GOOD.replace("match:", "failureMode: Closed, match:"), [WEBHOOKS]),
        (GOOD.replace("services:", "exemptions: {usernames: [bob]}\nservices:"), [WEBHOOKS]),
        (GOOD.replace("match:", "slaClass: gold, match:"), []),
    ],
)
def test_who_changes_what_the_webhooks_were_rendered_from_is_reported(new: str, warned: list[str]) -> None:
    found = asked(operation="UPDATE", object=config_map(new), oldObject=config_map(GOOD))
    assert response(found).get("warnings", []) == warned
    assert len(WEBHOOKS) < 120
    assert "warnings" not in response(asked(operation="UPDATE", object=config_map(new), oldObject=config_map(BAD)))


def limited(*windows: str) -> str:
    listed = ", ".join(f"{{window: {window}, hard: {{pods: 5{window[:-1]}}}}}" for window in windows)
    return GOOD.replace("[shop]}", f"[shop]}}, quota: {{windows: [{listed}]}}")


def test_who_changes_windows_is_reported_which_start_empty() -> None:
    old, new = config_map(limited("1m", "2m")), config_map(limited("2m", "3m"))
    line = "services[a].quota.windows[3m]: starts empty: no window of this length counted before"
    assert response(asked(operation="UPDATE", object=new, oldObject=old))["warnings"] == [line]
    assert "warnings" not in response(asked(operation="CREATE", object=new))


def test_thousands_of_limits_that_start_empty_are_counted_and_the_first_shown() -> None:
    services = [
        limited("1s").partition("- ")[2].replace("name: a", f"name: s{n}").replace("[shop]", f"[n{n}]")
        for n in range(50)
    ]
    old = GOOD.partition("- ")[0] + "".join(f"- {service}" for service in services)
    new = old.replace("1s", "2s")
    warned = response(asked(operation="UPDATE", object=config_map(new), oldObject=config_map(old)))["warnings"]
    assert len(warned) == 21
    assert warned[-1] == "and 30 more limits start empty"


def test_a_policy_is_judged_by_what_kind_of_server_will_act_on_it() -> None:
    text = GOOD.replace("[shop]}", "[shop]}, quota: {scope: Fleet, windows: [{window: 1m, hard: {pods: 5}}]}")
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "object": config_map(text),
    }
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    assert judge(body).errors == ()
    [line] = judge(body, Purpose.SERVE_IN_PROCESS).errors
    assert "counts only its own Pods" in line


def test_selectors_that_cannot_be_distinguished_are_a_warning() -> None:
    labels = [f"{{matchLabels: {{a{number}: x, b{number}: y, c{number}: z}}}}" for number in range(8)]
    services = "".join(f"- {{name: s{n}, match: {{namespaceSelector: {text}}}}}\n" for n, text in enumerate(labels))
    [warning] = response(asked(object=config_map(GOOD.partition("- ")[0] + services)))["warnings"]
    assert "more than 100 webhooks" in warning


def test_thousands_of_errors_are_counted_and_the_first_hundred_shown() -> None:
    services = "".join(f"- {{name: A_{number}, match: {{namespaces: [n{number}]}}}}\n" for number in range(150))
    message = response(asked(object=config_map(GOOD.partition("- ")[0] + services)))["status"]["message"]
    assert len(message.splitlines()) == 102
    assert message.endswith("and 50 more: see podgate policy lint")


@pytest.mark.parametrize(
    ("object_", "words"),
    [
        (config_map(None, data={"policy.yml": GOOD}), "data['policy.yaml'] is missing, there is policy.yml: put"),
        (config_map(None), "data['policy.yaml'] is missing, there is nothing: put"),
        (config_map(None, binaryData={"policy.yaml": "YQ=="}), "binaryData['policy.yaml']: it is UTF-8 text"),
    ],
)
def test_a_config_map_without_the_document_is_refused(object_: dict[str, Any], words: str) -> None:
    [line] = asked(object=object_).errors
    assert line.startswith(f"configmap podgate-system/podgate-policy: {words}")


def test_an_update_that_leaves_the_document_alone_is_admitted_whatever_stands_in_it() -> None:
    bad = config_map(BAD)
    labelled = {**bad, "metadata": {**bad["metadata"], "labels": {"a": "b"}}}
    found = asked(operation="UPDATE", object=labelled, oldObject=bad)
    assert (response(found)["allowed"], found.judged) == (True, False)
    mended = asked(operation="UPDATE", object=config_map(GOOD), oldObject=bad)
    assert (response(mended)["allowed"], mended.judged) == (True, True)
    assert asked(operation="UPDATE", object=bad, oldObject=config_map(GOOD)).errors


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "podgate-policy-last-good"},
        {"namespace": "elsewhere"},
        {"operation": "DELETE", "object": None},
        {"resource": {"group": "", "version": "v1", "resource": "pods"}},
    ],
)
def test_what_is_no_policy_is_none_of_podgate(request_: dict[str, Any]) -> None:
    found = asked(**{"object": config_map(BAD), **request_})
    assert (response(found)["allowed"], found.judged) == (True, False)


@pytest.mark.parametrize(("object_", "words"), [(None, "object is missing"), ({"data": 5}, r"object: .*\$\.data")])
def test_a_broken_review_is_the_callers_fault(object_: Any, words: str) -> None:
    with pytest.raises(BadReviewError, match=words):
        asked(object=object_)
