"""AdmissionReview bodies: invalid ones are client errors with a named place."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.admission.review import any_json, list_places
from tests.core.reviewing import Gate, body, envelope, pod, policy_of
from tests.core.strategies import PROPERTY, Json, pods
from tests.harness.nesting import BEYOND_EACH_INTERPRETER
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.review import _decode_in_one_pass, _decode_in_steps, decode, encode
from webhook.core.kubernetes.admission_request import ALLOWED, BadReviewError, ResponseStatus
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.core.patch import Patch, add

WEB = policy_of(
    """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement:
    schedulerName: podgate-scheduler
    nodeSelector: {disk: ssd}
    topology: [{level: Zone, in: [b]}]
    tolerations: [{key: gpu, operator: Exists}]
  quota: {windows: [{window: 1m, hard: {pods: 1000000, cpu: "1000000", memory: 1Pi}}]}
"""
)


def remove_field(field: str) -> bytes:
    review = envelope()
    del review["request"][field]
    return msgspec.json.encode(review)


def spec(**fields: Any) -> bytes:
    return body(object=pod(**fields))


GOOD = body()
NESTED = b'{"a":' * BEYOND_EACH_INTERPRETER + b"1" + b"}" * BEYOND_EACH_INTERPRETER

BAD = {
    "empty": (b"", "empty body"),
    "spaces": (b"   ", "AdmissionReview: "),
    "not_json": (b"hello", "AdmissionReview: JSON is malformed"),
    "cut_off": (GOOD[:-10], "AdmissionReview: "),
    "two_documents": (GOOD + GOOD, "AdmissionReview: JSON is malformed"),
    "null": (b"null", "AdmissionReview: Expected `object`, got `null`"),
    "object_without_fields": (b"{}", "apiVersion '', kind ''"),
    "array": (b"[]", "AdmissionReview: Expected `object`, got `array`"),
    "number": (b"7", "AdmissionReview: Expected `object`, got `int`"),
    "wrong_kind": (GOOD.replace(b'"AdmissionReview"', b'"ConversionReview"'), "kind 'ConversionReview'"),
    "v1beta1": (GOOD.replace(b"k8s.io/v1", b"k8s.io/v1beta1"), "apiVersion 'admission.k8s.io/v1beta1'"),
    "kind_of_wrong_type": (GOOD.replace(b'"AdmissionReview"', b"7"), "got `int` - at `$.kind`"),
    "no_request": (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "request is missing"),
    "null_request": (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request": null }', "is missing"),
    "uid_of_wrong_type": (body(uid=7), "AdmissionReview: Expected `str`, got `int` - at `$.request.uid`"),
    "no_uid": (remove_field("uid"), "Object missing required field `uid` - at `$.request`"),
    "empty_uid": (body(uid=""), "AdmissionReview.request.uid is empty"),
    "no_operation": (remove_field("operation"), "`operation`"),
    "no_resource": (remove_field("resource"), "`resource`"),
    "resource_version_of_wrong_type": (
        body(resource={"group": "", "version": 1, "resource": "pods"}),
        "Expected `str`, got `int` - at `$.request.resource.version`",
    ),
    "null_user": (body(userInfo=None), "at `$.request.userInfo`"),
    "no_object_on_create": (body(object=None), "AdmissionReview.request.object is missing"),
    "object_of_wrong_type": (body(object=[1]), "AdmissionReview.request.object: Expected `object`, got `array`"),
    "object_without_metadata": (body(object={"spec": {}}), "request.object: Object missing required field `metadata`"),
    "old_object_of_wrong_type": (body(oldObject="x"), "AdmissionReview.request.oldObject: Expected `object`"),
    "node_selector_of_wrong_type": (spec(nodeSelector=["x"]), "at `$.spec.nodeSelector`"),
    "node_selector_value_of_wrong_type": (spec(nodeSelector={"a": 1}), "at `$.spec.nodeSelector[...]`"),
    "tolerations_of_wrong_type": (spec(tolerations={"key": "a"}), "at `$.spec.tolerations`"),
    "labels_of_wrong_type": (body(object={"metadata": {"labels": "x"}, "spec": {}}), "at `$.metadata.labels`"),
    "terms_of_wrong_type": (
        spec(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [7]}}}),
        "nodeSelectorTerms[0]`",
    ),
    "nested_deeply_at_the_top": (NESTED, "apiVersion '', kind ''"),
    "nested_deeply_and_wrong": (
        GOOD.replace(b'"containers"', b'"x":' + NESTED + b',"nodeSelector":1,"containers"'),
        "at `$.spec.nodeSelector`",
    ),
    "arrays_nested_deeply": (GOOD[:-1] + b',"x":' + b"[" * BEYOND_EACH_INTERPRETER, "nested too deeply"),
    "byte_order_mark": (b"\xef\xbb\xbf" + GOOD, "JSON is malformed"),
    "utf16": (GOOD.decode().encode("utf-16"), "JSON is malformed"),
    "huge_int": (GOOD.replace(b'"resources":{}', b'"resources":{"requests":{"cpu":' + b"9" * 5000 + b"}}"), "requests"),
    "huge_float": (GOOD.replace(b'"resources":{}', b'"resources":{"requests":{"cpu":1e999}}'), "requests"),
}


@pytest.mark.parametrize("half", Half)
@pytest.mark.parametrize("name", BAD)
async def test_bad_body_is_refused_with_its_field_and_the_next_review_succeeds(name: str, half: Half) -> None:
    gate = Gate(WEB)
    broken, text = BAD[name]
    assert broken != GOOD
    with pytest.raises(BadReviewError) as error:
        await gate.interceptor.review(half, broken)
    assert text in str(error.value)
    assert len(str(error.value)) < 400
    answer = await gate.interceptor.review(half, GOOD)
    assert answer.decision.allowed


@pytest.mark.parametrize("text", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\\ud800", b"\\udc00"])
@pytest.mark.parametrize("place", [b"review-1", b"default-scheduler"])
async def test_text_that_is_no_unicode_is_read_as_go_reads_it(place: bytes, text: bytes) -> None:
    broken = GOOD.replace(place, text)
    assert broken != GOOD
    answer = await Gate(WEB).interceptor.review(Half.MUTATE, broken)
    assert answer.decision.allowed
    assert ("\ufffd" in msgspec.json.decode(answer.body)["response"]["uid"]) == (place == b"review-1")


async def test_name_of_a_tenant_in_an_error_is_printable() -> None:
    container = {"name": "\x1b[2J", "resources": {"requests": {"cpu": "lots"}}}
    limited = policy_of("- name: web\n  match: {namespaces: [shop]}\n  resources: {container: {max: {cpu: 4}}}\n")
    with pytest.raises(BadReviewError) as error:
        await Gate(limited).mutate(object=pod({"app": "web"}, containers=[container]))
    assert "container \\x1b[2J: " in str(error.value)


def test_error_message_truncates_the_values_that_it_quotes() -> None:
    with pytest.raises(BadReviewError) as error:
        decode(msgspec.json.encode({"apiVersion": "a" * 10**6, "kind": "b" * 10**6}))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("amount", "text"),
    [("lots", "cpu: 'lots': not a Kubernetes quantity"), ("-1", "cpu: '-1': a quantity must not be negative")],
)
async def test_unreadable_amount_is_a_bad_review(amount: str, text: str) -> None:
    gate = Gate(WEB)
    wrong = gate.build_owned_pod("u1", containers=[{"name": "c", "resources": {"requests": {"cpu": amount}}}])
    wrong["spec"] |= {"schedulerName": "podgate-scheduler", "nodeSelector": {"disk": "ssd"}}
    wrong = await rewrite_pod(gate, wrong)
    with pytest.raises(BadReviewError) as error:
        await gate.validate(object=wrong)
    assert text in str(error.value)
    assert "AdmissionReview.request.object.spec" in str(error.value)
    assert gate.store.requests == []


async def rewrite_pod(gate: Gate, raw: Json) -> Json:
    import jsonpatch  # noqa: PLC0415  the one use here

    decision = await gate.mutate(object=raw)
    result: Json = jsonpatch.apply_patch(raw, msgspec.to_builtins(list(decision.patch)))
    return result


@pytest.mark.parametrize(
    ("operation", "sub_resource", "sent"),
    [
        ("CREATE", "binding", {"kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        ("CREATE", "eviction", {"kind": "Eviction", "metadata": {"name": "p"}}),
        ("CONNECT", "exec", {"kind": "PodExecOptions", "container": "c", "command": ["sh"]}),
        ("CONNECT", "portforward", {"kind": "PodPortForwardOptions", "ports": [80]}),
        ("UPDATE", "status", pod()),
        ("UPDATE", "ephemeralcontainers", pod()),
        ("DELETE", "", None),
    ],
)
@pytest.mark.parametrize("half", Half)
async def test_other_operations_and_subresources_of_pods_are_admitted(
    half: Half, operation: str, sub_resource: str, sent: Json | None
) -> None:
    gate = Gate(WEB)
    decision = (await gate.ask(half, operation=operation, subResource=sub_resource, object=sent)).decision
    assert decision.allowed
    assert decision.verdict is Verdict.UNMATCHED
    assert (decision.patch, gate.store.requests) == ((), [])


def test_last_of_duplicate_json_keys_is_used() -> None:
    """The API server, too, uses the last one. It sends no duplicates, because it encodes the object that it decoded."""
    with_duplicate_key = GOOD.replace(b'"default-scheduler"', b'"first","schedulerName":"second"')
    assert with_duplicate_key != GOOD
    for read in (_decode_in_one_pass, _decode_in_steps):
        request = read(with_duplicate_key)
        assert request is not None
        assert request.pod is not None
        assert request.pod.spec.scheduler_name == "second"


def test_resource_pods_of_another_api_group_is_no_pod() -> None:
    metrics = {"group": "metrics.k8s.io", "version": "v1beta1", "resource": "pods"}
    request = decode(body(resource=metrics, object={"kind": "PodMetrics"}))
    assert (request.resource, request.pod) == ("pods.metrics.k8s.io", None)


def test_response_has_the_uid_of_the_request_and_a_patch_with_its_type() -> None:
    decision = Decision(Half.MUTATE, 'u\u2028"', Verdict.ADMIT, patch=Patch([add({"a": "b"}, "metadata", "labels")]))
    answer = msgspec.json.decode(encode(decision))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert response["uid"] == 'u\u2028"'
    assert response["patchType"] == "JSONPatch"
    assert msgspec.json.decode(base64.b64decode(response["patch"], validate=True)) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    ]
    bare = msgspec.json.decode(encode(Decision(Half.VALIDATE, "u", Verdict.ADMIT)))
    assert bare["response"] == {"uid": "u", "allowed": True}


def test_response_has_a_status_only_if_denied() -> None:
    denied = Decision(
        Half.VALIDATE, "u", Verdict.DENY, status=ResponseStatus(429, "TooManyRequests", "no", 7), warnings=("w",)
    )
    assert msgspec.json.decode(encode(denied))["response"] == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 429, "reason": "TooManyRequests", "message": "no", "details": {"retryAfterSeconds": 7}},
        "warnings": ["w"],
    }
    assert "status" not in msgspec.json.decode(encode(Decision(Half.VALIDATE, "u", Verdict.ADMIT, status=ALLOWED)))


async def check_response_or_error(sent: bytes) -> None:
    """Send a body to both halves: each returns a valid response, or raises BadReviewError."""
    gate = Gate(WEB)
    for half in Half:
        try:
            answer = await gate.interceptor.review(half, sent)
        except BadReviewError:
            continue
        response = msgspec.json.decode(answer.body)["response"]
        assert response["uid"] == answer.decision.review_uid != ""
        assert ("patch" in response) == ("patchType" in response)
        assert half is Half.MUTATE or "patch" not in response
        assert half is Half.VALIDATE or response["allowed"]


@PROPERTY
@given(st.binary(max_size=200))
async def test_arbitrary_bytes_raise_only_bad_review_errors(sent: bytes) -> None:
    await check_response_or_error(sent)


@PROPERTY
@given(
    pods,
    st.none() | pods,
    st.sampled_from(
        [(operation, part) for operation in ("CREATE", "UPDATE", "DELETE") for part in ("", "resize", "status")]
    ),
)
def test_decoding_in_one_pass_equals_decoding_in_steps(raw: Json, old: Json | None, call: tuple[str, str]) -> None:
    sent = body(object=raw, oldObject=old, operation=call[0], subResource=call[1], dryRun=old is None)
    in_one_pass = _decode_in_one_pass(sent)
    assert (in_one_pass is not None) == (call in {("CREATE", ""), ("UPDATE", ""), ("UPDATE", "resize")})
    assert decode(sent) == (in_one_pass or _decode_in_steps(sent)) == _decode_in_steps(sent)


@PROPERTY
@given(pods, st.data())
async def test_review_with_one_invalid_field_raises_only_bad_review_errors(raw: Json, data: st.DataObject) -> None:
    raw["metadata"] |= {"uid": "u", "labels": {"app": "web"}}
    raw["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]
    operation = data.draw(st.sampled_from(["CREATE", "UPDATE"]))
    review = envelope(object=raw, oldObject=raw if operation == "UPDATE" else None, operation=operation)
    await check_response_or_error(spoil_one_field(review, data))


@PROPERTY
@given(pods, st.sampled_from(WORKLOAD_KINDS), st.data())
async def test_workload_review_with_one_invalid_field_raises_only_bad_review_errors(
    raw: Json, source: WorkloadKind, data: st.DataObject
) -> None:
    job_spec: Json = {"template": {"metadata": {"labels": {"app": "web"}}, "spec": raw["spec"]}}
    sent = {"metadata": {"name": "web"}, "spec": {**job_spec, "jobTemplate": {"spec": job_spec}}}
    resource = {"group": source.group, "version": "v1", "resource": source.resource}
    await check_response_or_error(spoil_one_field(envelope(object=sent, resource=resource), data))


def spoil_one_field(review: Json, data: st.DataObject) -> bytes:
    """Return a review with one field removed, or with any JSON value in it."""
    review = msgspec.json.decode(msgspec.json.encode(review))
    *path, last = data.draw(st.sampled_from([place for place in list_places(review) if place]))
    parent: Any = review
    for key in path:
        parent = parent[key]
    if data.draw(st.booleans()):
        parent[last] = data.draw(any_json)
    else:
        del parent[last]
    return msgspec.json.encode(review)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
async def test_review_with_changed_bytes_raises_only_bad_review_errors(flips: list[tuple[int, int]]) -> None:
    sent = bytearray(GOOD)
    for place, value in flips:
        sent[place] = value
    await check_response_or_error(bytes(sent))
