from tests.core.reviewing import Gate, pod, policy_of
from webhook.core.decision import Code, Half, Verdict

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
