from tests.core.reviewing import Gate, pod, policy_of
from webhook.core.admission.decision import Half, Verdict
from webhook.core.findings import Code

LABEL = "podgate.io/service"
PLACED = {"schedulerName": "podgate-scheduler"}
WEB = policy_of("""
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler}
  quota: {windows: [{window: 1m, hard: {cpu: "4"}}]}
""")


async def test_a_service_label_on_a_pod_of_nobody_is_taken_off() -> None:
    """Else it would pass for the service's Pod in a later resize, and charge it."""
    gate = Gate(WEB)
    forged = pod({"app": "theirs", LABEL: "web"})
    answer = await gate.ask(Half.MUTATE, object=forged)
    assert (answer.decision.verdict, answer.decision.allowed) == (Verdict.UNMATCHED, True)
    assert [(one.op, one.path) for one in answer.decision.patch] == [("remove", "/metadata/labels/podgate.io~1service")]
    assert b'"value"' not in answer.body
    kept = await gate.validate(object=pod({"app": "theirs", LABEL: "web"}, uid="u1"))
    assert (kept.verdict, [found.code for found in kept.findings]) == (Verdict.DENY, [Code.IMMUTABLE])
    assert kept.status.message.startswith("PodgateFieldImmutable: metadata.labels[podgate.io/service] is 'web'")


async def test_a_label_that_names_no_service_is_inert() -> None:
    gate = Gate(WEB)
    inert = {"app": "theirs", LABEL: "of-another-system"}
    assert (await gate.mutate(object=pod(inert))).patch == ()
    assert (await gate.validate(object=pod(inert, uid="u1"))).allowed


async def test_a_gated_pod_without_a_label_is_guarded_by_todays_owner() -> None:
    """It came in before the policy, or while we were away."""
    gate = Gate(WEB)
    gates = [{"name": "example.com/wait"}]
    old = pod({"app": "web"}, uid="u1", schedulingGates=gates, **PLACED)
    new = pod({"app": "web"}, uid="u1", schedulingGates=gates, schedulerName="theirs")
    loosened = await gate.validate(operation="UPDATE", object=new, oldObject=old)
    assert (loosened.service, loosened.allowed) == ("web", False)
    same = await gate.validate(operation="UPDATE", object=old, oldObject=old)
    assert same.allowed


async def test_what_a_user_asked_for_is_judged_also_where_the_rewrite_is_missing() -> None:
    """FailureMode Open forgives what was never written, not a contradiction of the user's own."""
    gate = Gate(WEB)
    forgiven = await gate.validate(object=pod({"app": "web"}, uid="u1"))
    assert (forgiven.allowed, [found.code for found in forgiven.findings]) == (True, [Code.MUTATION_MISSING])
    refused = await gate.validate(object=pod({"app": "web"}, uid="u2", schedulerName="theirs"))
    codes = [found.code for found in refused.findings]
    assert (refused.allowed, codes) == (False, [Code.MUTATION_MISSING, Code.PLACEMENT_CONFLICT])


async def test_dropping_the_label_that_was_matched_sets_no_gated_pod_free() -> None:
    gate = Gate(WEB)
    gates = [{"name": "example.com/wait"}]
    old = gate.owned("u1", schedulingGates=gates, **PLACED)
    new = pod({LABEL: "web"}, old["metadata"]["annotations"], "u1", schedulingGates=gates, schedulerName="theirs")
    loosened = await gate.validate(operation="UPDATE", object=new, oldObject=old)
    assert (loosened.service, loosened.allowed) == ("web", False)


async def test_a_resize_is_charged_to_its_service_whatever_labels_were_dropped_and_added() -> None:
    gate = Gate(WEB)
    labels = {"app": "theirs", LABEL: "web"}
    old, new = (
        pod(labels, uid="u1", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]) for cpu in ("1", "3")
    )
    decision = await gate.validate(operation="UPDATE", subResource="resize", object=new, oldObject=old)
    assert (decision.service, await gate.used()) == ("web", {"cpu": 2000})


async def test_a_pod_that_is_exempt_by_its_runtime_class_alone_must_keep_it_until_it_is_judged() -> None:
    """A webhook after ours may change the class: what was left alone was never rewritten."""
    services = "- {name: web, failureMode: Closed, match: {namespaces: [shop]}, placement: {schedulerName: s}}"
    gate = Gate(policy_of(services, "exemptions: {runtimeClasses: [spared]}"))
    left_alone = await gate.mutate(object=pod(runtimeClassName="spared"))
    assert (left_alone.verdict, left_alone.patch, left_alone.exemption) == (Verdict.EXEMPT, (), "runtimeClass")
    kept = await gate.validate(object=pod(uid="u1", runtimeClassName="spared"))
    assert (kept.verdict, kept.exemption) == (Verdict.EXEMPT, "runtimeClass")
    changed = await gate.validate(object=pod(uid="u1", runtimeClassName="another"))
    assert (changed.verdict, [found.code for found in changed.findings]) == (Verdict.DENY, [Code.MUTATION_MISSING])
