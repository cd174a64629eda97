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


async def test_service_label_of_an_unowned_pod_is_removed() -> None:
    """Otherwise a later resize would be charged to that service."""
    gate = Gate(WEB)
    forged = pod({"app": "theirs", LABEL: "web"})
    answer = await gate.ask(Half.MUTATE, object=forged)
    assert (answer.decision.verdict, answer.decision.allowed) == (Verdict.UNMATCHED, True)
    assert [(operation.op, operation.path) for operation in answer.decision.patch] == [
        ("remove", "/metadata/labels/podgate.io~1service")
    ]
    assert b'"value"' not in answer.body
    kept = await gate.validate(object=pod({"app": "theirs", LABEL: "web"}, uid="u1"))
    assert (kept.verdict, [found.code for found in kept.findings]) == (Verdict.DENY, [Code.IMMUTABLE])
    assert kept.status.message.startswith("PodgateFieldImmutable: metadata.labels[podgate.io/service] is 'web'")


async def test_label_of_an_unknown_service_is_ignored() -> None:
    gate = Gate(WEB)
    inert = {"app": "theirs", LABEL: "of-another-system"}
    assert (await gate.mutate(object=pod(inert))).patch == ()
    assert (await gate.validate(object=pod(inert, uid="u1"))).allowed


async def test_gated_pod_without_a_label_is_guarded_by_its_current_owner() -> None:
    """It was created before the policy, or while Podgate was unavailable."""
    gate = Gate(WEB)
    gates = [{"name": "example.com/wait"}]
    old = pod({"app": "web"}, uid="u1", schedulingGates=gates, **PLACED)
    new = pod({"app": "web"}, uid="u1", schedulingGates=gates, schedulerName="theirs")
    loosened = await gate.validate(operation="UPDATE", object=new, oldObject=old)
    assert (loosened.service, loosened.allowed) == ("web", False)
    same = await gate.validate(operation="UPDATE", object=old, oldObject=old)
    assert same.allowed


async def test_conflict_is_denied_even_if_the_rewrite_is_missing() -> None:
    """`failureMode: Open` admits a Pod without the rewrite, but not one whose own fields conflict with the policy."""
    gate = Gate(WEB)
    admitted = await gate.validate(object=pod({"app": "web"}, uid="u1"))
    assert (admitted.allowed, [found.code for found in admitted.findings]) == (True, [Code.MUTATION_MISSING])
    refused = await gate.validate(object=pod({"app": "web"}, uid="u2", schedulerName="theirs"))
    codes = [found.code for found in refused.findings]
    assert (refused.allowed, codes) == (False, [Code.MUTATION_MISSING, Code.PLACEMENT_CONFLICT])


async def test_gated_pod_stays_guarded_without_the_label_that_matched() -> None:
    gate = Gate(WEB)
    gates = [{"name": "example.com/wait"}]
    old = gate.build_owned_pod("u1", schedulingGates=gates, **PLACED)
    new = pod({LABEL: "web"}, old["metadata"]["annotations"], "u1", schedulingGates=gates, schedulerName="theirs")
    loosened = await gate.validate(operation="UPDATE", object=new, oldObject=old)
    assert (loosened.service, loosened.allowed) == ("web", False)


async def test_resize_is_charged_to_the_service_of_the_label_after_other_labels_change() -> None:
    gate = Gate(WEB)
    labels = {"app": "theirs", LABEL: "web"}
    old, new = (
        pod(labels, uid="u1", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}]) for cpu in ("1", "3")
    )
    decision = await gate.validate(operation="UPDATE", subResource="resize", object=new, oldObject=old)
    assert (decision.service, await gate.read_usage()) == ("web", {"cpu": 2000})


async def test_pod_exempt_by_its_runtime_class_is_denied_with_another_class() -> None:
    """A later webhook may change the class, and Podgate did not rewrite the exempt Pod."""
    services = "- {name: web, failureMode: Closed, match: {namespaces: [shop]}, placement: {schedulerName: s}}"
    gate = Gate(policy_of(services, "exemptions: {runtimeClasses: [spared]}"))
    exempt = await gate.mutate(object=pod(runtimeClassName="spared"))
    assert (exempt.verdict, exempt.patch, exempt.deviation.exemption) == (Verdict.EXEMPT, (), "runtimeClass")
    kept = await gate.validate(object=pod(uid="u1", runtimeClassName="spared"))
    assert (kept.verdict, kept.deviation.exemption) == (Verdict.EXEMPT, "runtimeClass")
    changed = await gate.validate(object=pod(uid="u1", runtimeClassName="another"))
    assert (changed.verdict, [found.code for found in changed.findings]) == (Verdict.DENY, [Code.MUTATION_MISSING])
