"""Validation of overrides on admission: invalid ones, and unknown services, are denied."""

from typing import Any

import msgspec
import pytest

from webhook.core.document import Purpose, load
from webhook.core.policy_changes.overrides_review import review_overrides
from webhook.core.policy_changes.policy_review import PolicyReview, decode_review

POLICY = load(
    b"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
    b"- {name: a, match: {namespaces: [shop]}, quota: {windows: [{window: 1m, hard: {pods: 5}}]}}\n",
    Purpose.SERVE,
).policy.policy
NOW_US = 1_796_094_000_000_000
GOOD = "- {service: a, quotaFactor: 2, until: 2026-12-01T04:00:00Z, reason: INC-1}\n"
OTHER = GOOD.replace("quotaFactor: 2", "modes: {quota: Audit}")
GONE = GOOD.replace("service: a", "service: gone")


def config_map(text: str | None, **more: Any) -> dict[str, Any]:
    data = None if text is None else {"overrides.yaml": text}
    return {"metadata": {"name": "podgate-overrides", "namespace": "podgate-system"}, "data": data, **more}


def judge_overrides(
    new: dict[str, Any], old: dict[str, Any] | None = None, *, with_policy: bool = True
) -> PolicyReview:
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-overrides",
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": "alice"},
        "object": new,
        "oldObject": old,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    found = decode_review(msgspec.json.encode(review))
    if isinstance(found, PolicyReview):
        return found
    return review_overrides(found, POLICY if with_policy else None, NOW_US)


def read_response(found: PolicyReview) -> dict[str, Any]:
    review: dict[str, Any] = msgspec.json.decode(found.body)
    return dict(review["response"])


@pytest.mark.parametrize("text", [GOOD, "", None])
def test_valid_and_absent_overrides_are_admitted(text: str | None) -> None:
    found = judge_overrides(config_map(text))
    assert read_response(found) == {"uid": "review-1", "allowed": True}
    assert (found.judged, found.errors, found.user, found.document) == (True, (), "alice", "overrides")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- {service: a, quotaFactor: 2, reason: x}\n", "overrides.yaml:1:3: [0].until: (absent): required: add until"),
        (GOOD + GOOD, "overrides.yaml:2:13: [1].service: a: a second live entry for a sets quotaFactor"),
        (GONE, "overrides.yaml: no service 'gone': the policy has a"),
        ("{", "overrides.yaml:"),
    ],
)
def test_invalid_overrides_are_denied_with_line_and_column(text: str, expected: str) -> None:
    found = judge_overrides(config_map(text))
    status = read_response(found)["status"]
    assert status["code"] == 400
    head, *lines = status["message"].splitlines()
    assert head.startswith("OverridesInvalid: the overrides have ")
    assert lines[0].startswith(expected)
    assert found.errors == tuple(lines)


def test_document_under_another_key_is_denied() -> None:
    found = judge_overrides({"metadata": {"name": "podgate-overrides"}, "data": {"override.yaml": GOOD}})
    assert "data['overrides.yaml'] is missing, there is override.yaml" in read_response(found)["status"]["message"]


def test_entry_of_a_removed_service_does_not_block_other_changes() -> None:
    assert read_response(judge_overrides(config_map(GONE + GOOD), config_map(GONE)))["allowed"] is True
    assert (
        read_response(judge_overrides(config_map(GONE.replace("INC-1", "INC-2")), config_map(GONE)))["allowed"] is False
    )
    assert read_response(judge_overrides(config_map(GOOD), config_map("{")))["allowed"] is True, (
        "the invalid document is replaced"
    )


def test_without_a_policy_only_the_document_is_validated() -> None:
    assert read_response(judge_overrides(config_map(GONE), with_policy=False))["allowed"] is True
    assert read_response(judge_overrides(config_map("- nonsense"), with_policy=False))["allowed"] is False


def test_entry_without_effect_is_a_warning() -> None:
    text = GOOD.replace("quotaFactor: 2", "breaker: ForcedOpen")
    assert read_response(judge_overrides(config_map(text)))["warnings"] == [
        "a: without effect: breaker: the service has no breaker"
    ]


def test_update_that_keeps_an_invalid_document_is_admitted_unevaluated() -> None:
    found = judge_overrides(config_map("- nonsense", metadata={"name": "podgate-overrides"}), config_map("- nonsense"))
    assert (read_response(found)["allowed"], found.judged) == (True, False)


BY_ALICE, BY_BOB = (GOOD.replace("reason:", f"by: {name}, reason:") for name in ("alice", "bob"))


def test_a_new_entry_names_no_other_author_than_the_user_of_the_request() -> None:
    assert read_response(judge_overrides(config_map(BY_ALICE)))["allowed"] is True
    message = read_response(judge_overrides(config_map(BY_BOB)))["status"]["message"]
    assert "[0].by: bob: the entry is written by alice: write that name, or leave it out" in message
    assert "overrides.yaml:1:" in message


def test_the_entries_of_others_are_kept() -> None:
    assert read_response(judge_overrides(config_map(BY_BOB + OTHER), config_map(BY_BOB)))["allowed"] is True
    changed = BY_BOB.replace("quotaFactor: 2", "quotaFactor: 3")
    assert read_response(judge_overrides(config_map(changed), config_map(BY_BOB)))["allowed"] is False
