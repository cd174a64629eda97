from typing import Any

import msgspec
import pytest

from tests.core.policy_changes.policy_review import GOOD, config_map, config_map_review, judge_review, read_response
from tests.harness.unread_values import UNREAD
from webhook.core.document import Purpose
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy_changes.policy_review import judge

BAD = GOOD.replace("name: a", "name: A_B").replace("kind: Policy", "kind: Polices")


def test_valid_policy_is_admitted() -> None:
    found = judge_review()
    assert read_response(found) == {"uid": "review-1", "allowed": True}
    assert (found.judged, found.errors, found.user) == (True, (), "alice")


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_policy_is_judged_whatever_its_managed_fields_are(unread: bytes) -> None:
    for text, is_allowed in ((GOOD, True), (BAD, False)):
        made = config_map(text)
        made["metadata"]["managedFields"] = [{"manager": "anybody", "fieldsV1": "<fields>"}]
        found = judge(config_map_review(object=made).replace(b'"<fields>"', unread))
        assert (read_response(found)["allowed"], found.judged) == (is_allowed, True)


def test_invalid_policy_is_denied_with_line_and_column_of_each_error() -> None:
    found = judge_review(object=config_map(BAD))
    status = read_response(found)["status"]
    assert status["code"] == 400
    first, *lines = status["message"].splitlines()
    assert first.startswith("PolicyInvalid: the policy has 2 errors")
    assert lines[0].startswith("policy.yaml:2:7: kind: ")
    assert lines[1].startswith("policy.yaml:4:10: services[0].name: ")
    assert found.errors == tuple(lines)


def test_probable_mistake_is_a_warning() -> None:
    text = GOOD.replace("{namespaces: [shop]}", "{anyNamespace: true}")
    [warning] = read_response(judge_review(object=config_map(text)))["warnings"]
    assert warning.startswith("policy.yaml:4:")


WEBHOOKS = "match, failureMode or exemptions changed: the leader follows, or else apply `podgate policy webhooks`"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (GOOD.replace("[shop]", "[shop, bank]"), [WEBHOOKS]),
        (GOOD.replace("match:", "failureMode: Closed, match:"), [WEBHOOKS]),
        (GOOD.replace("services:", "exemptions: {usernames: [bob]}\nservices:"), [WEBHOOKS]),
        (GOOD.replace("[shop]", "[shop], podSelector: {matchLabels: {app: web}}"), [WEBHOOKS]),
        (GOOD.replace("match:", "slaClass: gold, match:"), []),
    ],
)
def test_change_that_requires_new_webhooks_is_a_warning(new: str, expected: list[str]) -> None:
    found = judge_review(operation="UPDATE", object=config_map(new), oldObject=config_map(GOOD))
    assert read_response(found).get("warnings", []) == expected
    assert len(WEBHOOKS) < 120
    assert "warnings" not in read_response(
        judge_review(operation="UPDATE", object=config_map(new), oldObject=config_map(BAD))
    )


def build_limited_policy(*windows: str) -> str:
    listed = ", ".join(f"{{window: {window}, hard: {{pods: 5{window[:-1]}}}}}" for window in windows)
    return GOOD.replace("[shop]}", f"[shop]}}, quota: {{windows: [{listed}]}}")


def test_changed_window_that_starts_empty_is_a_warning() -> None:
    old, new = config_map(build_limited_policy("1m", "2m")), config_map(build_limited_policy("2m", "3m"))
    line = "services[a].quota.windows[3m]: starts empty: no window of this length counted before"
    assert read_response(judge_review(operation="UPDATE", object=new, oldObject=old))["warnings"] == [line]
    assert "warnings" not in read_response(judge_review(operation="CREATE", object=new))


def test_first_limits_that_start_empty_are_shown_and_the_rest_counted() -> None:
    services = [
        build_limited_policy("1s").partition("- ")[2].replace("name: a", f"name: s{n}").replace("[shop]", f"[n{n}]")
        for n in range(50)
    ]
    old = GOOD.partition("- ")[0] + "".join(f"- {service}" for service in services)
    new = old.replace("1s", "2s")
    warnings = read_response(judge_review(operation="UPDATE", object=config_map(new), oldObject=config_map(old)))[
        "warnings"
    ]
    assert len(warnings) == 21
    assert warnings[-1] == "and 30 more limits start empty"


def test_policy_is_reviewed_for_the_kind_of_server_that_applies_it() -> None:
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


def test_policy_that_needs_too_many_webhooks_is_a_warning() -> None:
    labels = [f"{{matchLabels: {{a{number}: x, b{number}: y, c{number}: z}}}}" for number in range(8)]
    services = "".join(f"- {{name: s{n}, match: {{namespaceSelector: {text}}}}}\n" for n, text in enumerate(labels))
    [warning] = read_response(judge_review(object=config_map(GOOD.partition("- ")[0] + services)))["warnings"]
    assert "more than 100 webhooks" in warning


def test_first_hundred_errors_are_shown_and_the_rest_counted() -> None:
    services = "".join(f"- {{name: A_{number}, match: {{namespaces: [n{number}]}}}}\n" for number in range(150))
    message = read_response(judge_review(object=config_map(GOOD.partition("- ")[0] + services)))["status"]["message"]
    assert len(message.splitlines()) == 102
    assert message.endswith("and 50 more: see podgate policy lint")


@pytest.mark.parametrize(
    ("object_", "expected"),
    [
        (config_map(None, data={"policy.yml": GOOD}), "data['policy.yaml'] is missing, there is policy.yml: put"),
        (config_map(None), "data['policy.yaml'] is missing, there is nothing: put"),
        (config_map(None, binaryData={"policy.yaml": "YQ=="}), "binaryData['policy.yaml']: it is UTF-8 text"),
    ],
)
def test_config_map_without_the_document_is_denied(object_: dict[str, Any], expected: str) -> None:
    [line] = judge_review(object=object_).errors
    assert line.startswith(f"configmap podgate-system/podgate-policy: {expected}")


def test_update_that_keeps_an_invalid_policy_is_admitted_unevaluated() -> None:
    bad = config_map(BAD)
    labelled = {**bad, "metadata": {**bad["metadata"], "labels": {"a": "b"}}}
    found = judge_review(operation="UPDATE", object=labelled, oldObject=bad)
    assert (read_response(found)["allowed"], found.judged) == (True, False)
    corrected = judge_review(operation="UPDATE", object=config_map(GOOD), oldObject=bad)
    assert (read_response(corrected)["allowed"], corrected.judged) == (True, True)
    assert judge_review(operation="UPDATE", object=bad, oldObject=config_map(GOOD)).errors


@pytest.mark.parametrize(
    "request_",
    [
        {"name": "podgate-policy-last-good"},
        {"namespace": "elsewhere"},
        {"operation": "DELETE", "object": None},
        {"resource": {"group": "", "version": "v1", "resource": "pods"}},
    ],
)
def test_other_objects_and_deletions_are_admitted_unevaluated(request_: dict[str, Any]) -> None:
    found = judge_review(**{"object": config_map(BAD), **request_})
    assert (read_response(found)["allowed"], found.judged) == (True, False)


@pytest.mark.parametrize(("object_", "expected"), [(None, "object is missing"), ({"data": 5}, r"object: .*\$\.data")])
def test_invalid_review_is_a_bad_review_error(object_: Any, expected: str) -> None:
    with pytest.raises(BadReviewError, match=expected):
        judge_review(object=object_)
