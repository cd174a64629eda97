"""Reinvocation: what an earlier call wrote from fields that have changed is written anew, the user's values stay."""

import pytest
from hypothesis import given

from tests.core.reinvoking import Admission, record_fields, send
from tests.core.reviewing import Gate, policy_of
from tests.core.rewriting import decode_pod, rewrite_pod
from tests.core.strategies import Json, Pair, class_pairs, examples, pairs, range_pairs
from webhook.core.admission.reinvocation import remove_outdated

FROM_POD = """
- name: web
  match: {namespaces: [shop]}
  placement:
    labels: {class: {fromPod: qos, default: BE}}
    onConflict: {labels: RULE}
"""
BY_CLASS = """
- name: web
  match: {namespaces: [shop]}
  placement:
    allow: {tolerations: [{key: gpu, operator: Exists}]}
    tolerationsByQosClass:
      BestEffort: [{key: spot, operator: Exists, effect: NoSchedule}]
      Burstable: [{key: steady, operator: Exists, effect: NoSchedule}]
"""
RATIO = """
- name: web
  match: {namespaces: [shop]}
  resources: {container: {defaultRequest: {cpu: 100m}, default: {cpu: 200m}, maxLimitRequestRatio: {cpu: 2}}}
"""
TWO_SERVICES = """
- name: fast
  match: {namespaces: [shop], podSelector: {matchLabels: {tier: fast}}}
  placement: {nodeSelector: {disk: ssd}, schedulerName: s-fast, runtimeClassName: runc, priorityClassName: high}
- name: slow
  match: {namespaces: [shop]}
  placement:
    labels: {pool: slow}
    nodeSelector: {disk: hdd, zone: b}
    schedulerName: s-slow
    runtimeClassName: gvisor
    priorityClassName: low
    tolerations: [{key: slow, operator: Exists}]
"""
SPOT = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
STEADY = {"key": "steady", "operator": "Exists", "effect": "NoSchedule"}
GPU = {"key": "gpu", "operator": "Exists"}


@pytest.mark.parametrize(("rule", "final"), [("Deny", "LS"), ("Override", "LS"), ("Keep", "BE")])
async def test_a_label_of_the_pod_is_read_anew(rule: str, final: str) -> None:
    admission = Admission(FROM_POD.replace("RULE", rule), send(labels={"app": "x"}))
    await admission.mutate()
    assert admission.labels["class"] == "BE"
    admission.labels["qos"] = "LS"
    await admission.mutate()
    assert admission.labels["class"] == final
    assert await admission.validate() == ""
    assert await admission.mutate() == []


async def test_a_label_that_the_user_sent_stays_and_is_denied() -> None:
    admission = Admission(FROM_POD.replace("RULE", "Deny"), send(labels={"class": "BE", "app": "x"}))
    await admission.mutate()
    admission.labels["qos"] = "LS"
    assert await admission.mutate() == []
    assert "remove the field from the Pod" in await admission.validate()


@pytest.mark.parametrize("is_recorded", [False, True])
async def test_a_hash_that_the_user_sent_is_no_sign_of_an_earlier_call(*, is_recorded: bool) -> None:
    services = FROM_POD.replace("RULE", "Deny")
    forged = {"podgate.io/policy-hash": Gate(policy_of(services)).loaded.hash}
    sent = send(labels={"qos": "LS", "app": "x"}, annotations=forged)
    sent["metadata"]["labels"]["class"] = "BE"  # another webhook's
    if not is_recorded:
        del sent["metadata"]["managedFields"]
    admission = Admission(services, sent)
    await admission.mutate()
    assert admission.labels["class"] == "BE"
    assert "class] is 'BE', the policy sets 'LS'" in await admission.validate()


async def test_a_label_with_the_name_of_the_hash_is_no_hash() -> None:
    admission = Admission(FROM_POD.replace("RULE", "Deny"), send(labels={"podgate.io/policy-hash": "x", "app": "x"}))
    await admission.mutate()
    admission.labels["qos"] = "LS"
    await admission.mutate()
    assert admission.labels["class"] == "LS"
    assert await admission.validate() == ""


@pytest.mark.parametrize("own", [None, [GPU]])
async def test_tolerations_are_those_of_the_new_class(own: list[Json] | None) -> None:
    admission = Admission(BY_CLASS, send(tolerations=own) if own else send())
    await admission.mutate()
    assert admission.pod["spec"]["tolerations"] == [*(own or []), SPOT]
    admission.resources["requests"] = {"cpu": "100m"}
    await admission.mutate()
    assert admission.pod["spec"]["tolerations"] == [*(own or []), STEADY]
    assert await admission.validate() == ""
    assert await admission.mutate() == []


async def test_tolerations_of_the_user_stay() -> None:
    services = BY_CLASS.replace("    allow: {tolerations: [{key: gpu, operator: Exists}]}\n", "")
    admission = Admission(services, send(tolerations=[SPOT]))
    await admission.mutate()
    admission.resources["requests"] = {"cpu": "100m"}
    await admission.mutate()
    assert admission.pod["spec"]["tolerations"] == [SPOT, STEADY]


async def test_a_toleration_of_the_user_that_is_of_another_class_is_denied() -> None:
    admission = Admission(BY_CLASS, send(tolerations=[STEADY]))
    await admission.mutate()
    assert await admission.mutate() == []
    message = await admission.validate()
    assert "spec.tolerations has steady Exists:NoSchedule" in message
    assert "before podgate" not in message


async def test_a_toleration_that_the_first_call_inserted_in_part_is_taken_back() -> None:
    services = BY_CLASS.replace("    allow: {tolerations: [{key: gpu, operator: Exists}]}\n", "")
    services = services.replace("{key: spot, operator: Exists, effect: NoSchedule}", "{operator: Exists}")
    by_the_api_server = {
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300
    }  # fmt: skip
    sent = send()
    sent["spec"]["tolerations"] = [by_the_api_server]
    admission = Admission(services, sent)
    await admission.mutate()
    assert len(admission.pod["spec"]["tolerations"]) > 1
    admission.resources["requests"] = {"cpu": "100m"}
    await admission.mutate()
    assert admission.pod["spec"]["tolerations"] == [by_the_api_server, STEADY]


async def test_a_toleration_that_another_webhook_wrote_before_stays() -> None:
    services = BY_CLASS.replace("    allow: {tolerations: [{key: gpu, operator: Exists}]}\n", "")
    services = services.replace(
        "{key: spot, operator: Exists, effect: NoSchedule}", "{operator: Exists, effect: NoSchedule}"
    )
    sent = send()
    sent["spec"]["tolerations"] = [{**GPU, "effect": "NoSchedule"}]
    admission = Admission(services, sent)
    await admission.mutate()
    admission.resources["requests"] = {"cpu": "100m"}
    await admission.mutate()
    assert admission.pod["spec"]["tolerations"] == [{**GPU, "effect": "NoSchedule"}, STEADY]


@pytest.mark.parametrize(("request_", "limit"), [("50m", "100m"), ("150m", "200m"), ("1", "1")])
async def test_a_limit_fits_the_request_of_another_webhook(request_: str, limit: str) -> None:
    admission = Admission(RATIO, send())
    await admission.mutate()
    assert admission.resources == {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    admission.resources["requests"]["cpu"] = request_
    await admission.mutate()
    assert admission.resources == {"requests": {"cpu": request_}, "limits": {"cpu": limit}}
    assert await admission.validate() == ""
    assert await admission.mutate() == []


async def test_the_limit_of_an_init_container_fits_its_request() -> None:
    services = RATIO.replace("resources: {", "resources: {initContainer: {default: {cpu: 150m}}, ")
    admission = Admission(services, send(initContainers=[{"name": "i", "resources": {}}]))
    await admission.mutate()
    resources = admission.pod["spec"]["initContainers"][0]["resources"]
    assert resources == {"requests": {"cpu": "100m"}, "limits": {"cpu": "150m"}}
    resources["requests"]["cpu"] = "50m"
    await admission.mutate()
    resources = admission.pod["spec"]["initContainers"][0]["resources"]
    assert resources == {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}


async def test_a_limit_that_the_user_sent_stays_and_is_denied() -> None:
    own = [{"name": "c", "resources": {"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}}}]
    admission = Admission(RATIO, send(containers=own))
    await admission.mutate()
    admission.resources["requests"]["cpu"] = "50m"
    assert await admission.mutate() == []
    assert "lower the limit, or raise the request" in await admission.validate()


async def test_a_pod_that_has_come_to_another_service_keeps_nothing_of_the_former() -> None:
    admission = Admission(TWO_SERVICES, send(labels={"app": "x"}))
    await admission.mutate()
    admission.pod["spec"] |= {"priority": 1, "overhead": {"cpu": "100m"}}  # by the API server
    admission.labels["tier"] = "fast"
    await admission.mutate()
    admission.pod["spec"]["priority"] = 9
    assert admission.labels == {"app": "x", "podgate.io/service": "fast", "tier": "fast"}
    spec = {key: value for key, value in admission.pod["spec"].items() if key != "containers"}
    assert spec == {
        "nodeSelector": {"disk": "ssd"},
        "schedulerName": "s-fast",
        "runtimeClassName": "runc",
        "priorityClassName": "high",
        "priority": 9,
        "tolerations": [],
    }
    assert await admission.validate() == ""


async def test_a_pod_that_has_come_to_another_service_keeps_the_users_values() -> None:
    slow = {"key": "slow", "operator": "Exists"}
    own = {"nodeSelector": {"zone": "b"}, "runtimeClassName": "gvisor", "tolerations": [slow]}
    admission = Admission(TWO_SERVICES.replace("runtimeClassName: runc, ", ""), send(labels={"app": "x"}, **own))
    await admission.mutate()
    assert admission.pod["spec"]["nodeSelector"] == {"zone": "b", "disk": "hdd"}
    admission.labels["tier"] = "fast"
    await admission.mutate()
    assert {key: admission.pod["spec"][key] for key in own} == {**own, "nodeSelector": {"zone": "b", "disk": "ssd"}}


@pytest.mark.parametrize(
    ("services", "change", "is_explained"),
    [
        (FROM_POD, {"labels": {"qos": "LS"}}, True),
        (FROM_POD, {"labels": {"qos": "LS"}, "managedFields": None}, False),
        (BY_CLASS, {"resources": {"requests": {"cpu": "100m"}}}, True),
        (RATIO, {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}}, True),
        (RATIO, {"labels": {"podgate.io/service": "gold"}}, False),
    ],
    ids=["label", "unrecorded", "tolerations", "limit", "another-field"],
)
async def test_a_denial_for_what_is_outdated_after_the_last_call_names_the_cause(
    services: str, change: Json, *, is_explained: bool
) -> None:
    admission = Admission(services.replace("RULE", "Deny"), send(labels={"app": "x"}))
    await admission.mutate()
    admission.labels.update(change.get("labels", {}))
    admission.resources.update(change.get("resources", {}))
    admission.pod["metadata"] |= {key: change[key] for key in change if key == "managedFields"}
    message = await admission.validate()
    assert message
    assert ("must be called before podgate" in message) is is_explained


@pytest.mark.parametrize("is_called_again", [False, True])
@pytest.mark.parametrize(
    ("services", "labels", "resources"),
    [
        (FROM_POD, {"class": "LS"}, {}),
        (RATIO, {}, {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}),
    ],
    ids=["label", "limit"],
)
async def test_what_others_wrote_before_the_first_call_is_judged_alike_in_each(
    services: str, labels: Json, resources: Json, *, is_called_again: bool
) -> None:
    admission = Admission(services.replace("RULE", "Deny"), send(labels={"app": "x"}))
    admission.labels.update(labels)
    admission.resources.update(resources)
    await admission.mutate()
    assert admission.pod["metadata"]["annotations"]["podgate.io/foreign-values"] == "true"
    if is_called_again:
        admission.pod["spec"]["containers"].append({"name": "sidecar", "resources": {}})
        await admission.mutate()
    assert admission.resources == resources
    assert "a webhook that is called before podgate did, or a plugin" in await admission.validate()


async def test_a_mark_that_the_user_sent_is_none() -> None:
    sent = send(labels={"app": "x"}, annotations={"podgate.io/foreign-values": "true"})
    admission = Admission(FROM_POD.replace("RULE", "Deny"), sent)
    await admission.mutate()
    admission.labels["qos"] = "LS"
    await admission.mutate()
    assert await admission.validate() == ""


async def test_a_pod_without_values_of_others_has_no_mark() -> None:
    own = [{"name": "c", "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}}]
    for admission in (Admission(RATIO, send()), Admission(RATIO, send(containers=own))):
        await admission.mutate()
        assert [*admission.pod["metadata"]["annotations"]] == ["podgate.io/policy-hash"]


async def test_without_an_earlier_call_nothing_is_outdated() -> None:
    admission = Admission(FROM_POD.replace("RULE", "Deny"), send(labels={"qos": "LS"}))
    admission.labels["class"] = "BE"  # another webhook's
    message = await admission.validate()
    assert "class] is 'BE', the policy sets 'LS'" in message
    assert "before podgate" not in message


@examples(100)
@given(pairs | class_pairs | range_pairs)
def test_nothing_is_outdated_as_long_as_nothing_changes(pair: Pair) -> None:
    metadata, spec = pair.pod["metadata"], pair.pod["spec"]
    containers = {field: spec[field] for field in ("containers", "initContainers") if spec.get(field)}
    described = {kind: metadata.get(kind) or {} for kind in ("labels", "annotations")}
    sent = {"metadata": described, "spec": dict.fromkeys(spec, "") | containers}
    managed = [{"fieldsV1": record_fields(sent)}]
    once = rewrite_pod({**pair.pod, "metadata": {**metadata, "managedFields": managed}}, pair.service)
    assert remove_outdated(decode_pod(once), pair.service, pair.service) == []
