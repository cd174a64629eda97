"""The proof at policy load: rejections, blamed entries, tolerated cases, and its size."""

from typing import Any

import pytest
from click.testing import CliRunner

from tests.core.document.documents import HEAD, problems, warnings, with_service
from tests.core.policy_admission.test_policy_review import asked, config_map, response
from webhook.cli import root
from webhook.core.admission.mutation import rewrite
from webhook.core.document import loading
from webhook.core.document.yaml import reader
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation, add
from webhook.core.policy.model import Policy, Service
from webhook.core.proof import Proof, prove, prover, rewrite_check
from webhook.core.proof.corpus import CORPUS

ZONE = "topology.kubernetes.io/zone"
TERMS = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "


def policy_of(*services: str) -> Policy:
    """Return a policy of services with these stanzas, as if no rule of the document had looked at them before."""
    listed = "".join(
        f"- {{name: s{place}, match: {{namespaces: [n{place}]}}, {text}}}\n" for place, text in enumerate(services)
    )
    return loading._policy(reader.read(f"{HEAD}services:\n{listed}".encode()).root)


def native(*expressions: str) -> str:
    """Return an affinity whose one required term has these expressions, each written as key, operator, values."""
    return TERMS + "[{matchExpressions: [" + ", ".join(f"{{{text}}}" for text in expressions) + "]}]}}}"


TORN = f"nodeSelector: {{{ZONE}: a}}, " + native(f"key: {ZONE}, operator: In, values: [b]")
"""A placement that no node can fulfil."""


# The corpus


def test_every_pod_of_the_corpus_is_odd_in_its_own_way() -> None:
    assert len(CORPUS) >= 30
    assert len({sample.name for sample in CORPUS}) == len(CORPUS)
    assert len({sample.raw for sample in CORPUS}) == len(CORPUS)


def test_a_plain_pod_asks_for_nothing() -> None:
    rules = (
        "placement: {schedulerName: x, nodeSelector: {a: b}, topology: [{level: Zone, in: [z]}], priorityClassName: p,"
        " runtimeClassName: r, topologySpreadConstraints: ["
        "{maxSkew: 1, topologyKey: t, whenUnsatisfiable: DoNotSchedule}]}"
    )
    [service] = policy_of(rules).services
    plain = [sample for sample in CORPUS if sample.is_plain]
    assert plain
    assert [rewrite_check.rewrite_failure(sample, service) for sample in plain] == [None] * len(plain)


# What is refused


@pytest.mark.parametrize(
    "placement",
    [
        TORN,
        "nodeSelector: {cores: '4'}, " + native("key: cores, operator: Gt, values: ['8']"),
        "nodeSelector: {disk: ssd}, topology: [{key: disk, in: [hdd]}]",
    ],
)
def test_a_placement_that_no_node_can_fulfil_is_a_flaw(placement: str) -> None:
    [flaw] = prove(policy_of(f"placement: {{{placement}}}")).flaws
    assert (flaw.service, flaw.stanza) == (0, "placement")
    assert flaw.reason.startswith(
        "a plain Pod, which sets none of these fields, cannot satisfy it: PlacementContradiction: "
    )
    assert flaw.remedy == "fix these rules, which contradict each other: no Pod can satisfy them"


@pytest.mark.parametrize("mode", ["Warn", "Audit", "Disabled"])
def test_rules_that_are_only_tried_out_are_proved_as_if_they_were_enforced(mode: str) -> None:
    assert prove(policy_of(f"modes: {{placement: {mode}}}, placement: {{{TORN}}}")).flaws


def test_rules_whose_rewrite_never_comes_to_rest_are_refused_here_by_a_rewrite_that_adds_a_toleration_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def restless(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        own = pod.spec.tolerations
        one = {"key": "again", "operator": "Exists"}
        more = add([one], "spec", "tolerations") if own is None else add(one, "spec", "tolerations", "-")
        return (*rewrite(pod, service, policy_hash), more)

    monkeypatch.setattr(rewrite_check, "rewrite", restless)
    [line] = problems(with_service("  placement: {nodeSelector: {a: b}}\n"))
    assert line.startswith("6:3: services[0].placement: {...}: a plain Pod is changed again by every rewrite")
    assert "/spec/tolerations/-" in line
    assert line.endswith("report it, and use simpler rules until it is fixed")


def test_rules_that_a_rewrite_leaves_unfulfilled_are_refused_here_by_a_rewrite_that_forgets_the_node_selector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        made = rewrite(pod, service, policy_hash)
        return tuple(operation for operation in made if "nodeSelector" not in operation.path)

    monkeypatch.setattr(rewrite_check, "rewrite", forgetful)
    found = problems(with_service("  placement: {nodeSelector: {disk: ssd}}\n"))
    assert any("PlacementUnfulfilled: spec.nodeSelector[disk] is missing" in line for line in found)


def test_code_that_fails_on_a_pod_is_a_flaw_and_no_crash_here_by_a_rewrite_that_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        if pod.spec.init_containers:
            raise ZeroDivisionError("of ours")
        return rewrite(pod, service, policy_hash)

    monkeypatch.setattr(rewrite_check, "rewrite", failing)
    [flaw] = prove(policy_of("resources: {container: {max: {cpu: 8}}}")).flaws
    assert (flaw.service, flaw.stanza) == (0, "resources")
    assert flaw.reason == "a Pod with init containers cannot be rewritten: ZeroDivisionError('of ours')"


def test_a_patch_that_cannot_be_applied_is_a_flaw_here_by_one_that_adds_below_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rewrite_check, "rewrite", lambda *_: (add(1, "spec", "nothing", "here"),))
    [flaw] = prove(policy_of("placement: {nodeSelector: {a: b}}")).flaws
    assert "cannot be rewritten: JsonP" in flaw.reason


# Who is to blame


def test_what_services_inherit_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    raising_for(monkeypatch, "placement")
    services = "".join(f"- {{name: s{place}, match: {{namespaces: [n{place}]}}}}\n" for place in range(3))
    [line] = problems(f"{HEAD}defaults:\n  placement: {{nodeSelector: {{a: b}}}}\nservices:\n{services}")
    assert line.startswith("4:3: defaults.placement: {...}: a plain Pod cannot be rewritten: ")


def raising_for(monkeypatch: pytest.MonkeyPatch, *stanzas: str, together: bool = False) -> None:
    """Let rewriting fail for a service that has any of these stanzas, or only for one that has all of them."""

    def failing(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        if (all if together else any)(getattr(service, stanza) is not None for stanza in stanzas):
            raise ZeroDivisionError
        return rewrite(pod, service, policy_hash)

    monkeypatch.setattr(rewrite_check, "rewrite", failing)


BOTH = "placement: {nodeSelector: {a: b}}, resources: {container: {max: {cpu: 8}}}"


@pytest.mark.parametrize(
    ("stanzas", "together", "blamed"),
    [
        (("placement",), False, ["placement"]),
        (("resources",), False, ["resources"]),
        (("placement", "resources"), False, ["placement", "resources"]),
        (("placement", "resources"), True, ["placement"]),
    ],
)
def test_the_stanza_that_is_to_blame_is_named(
    monkeypatch: pytest.MonkeyPatch, stanzas: tuple[str, ...], *, together: bool, blamed: list[str]
) -> None:
    raising_for(monkeypatch, *stanzas, together=together)
    assert [flaw.stanza for flaw in prove(policy_of(BOTH)).flaws] == blamed


def test_every_service_with_the_same_bad_rules_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    raising_for(monkeypatch, "resources")
    proof = prove(
        policy_of("placement: {nodeSelector: {a: b}}", BOTH, "quota: {windows: [{window: 1m, hard: {pods: 1}}]}", BOTH)
    )
    assert [(flaw.service, flaw.stanza) for flaw in proof.flaws] == [(1, "resources"), (3, "resources")]
    assert (proof.proved, proof.sets) == (2, 2)


# What is held against nobody


@pytest.mark.parametrize("rule", ["Deny", "Keep", "Override"])
def test_a_users_own_conflict_is_no_flaw_of_the_policy(rule: str) -> None:
    placement = (
        "schedulerName: ours, priorityClassName: ours, runtimeClassName: ours, nodeSelector: {disk: ssd},"
        " topologySpreadConstraints: ["
        "{maxSkew: 9, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}"
        f"], topology: [{{level: Zone, in: [zone-x]}}], onConflict: {{default: {rule}}}"
    )
    outside = "Deny" if rule == "Deny" else "Clamp"
    resources = f"whenOutside: {outside}, container: {{max: {{cpu: 1m}}}}, pod: {{max: {{memory: 1}}}}"
    assert prove(policy_of(f"placement: {{{placement}}}, resources: {{{resources}}}")) == Proof((), 1, 1)


def test_limits_only_or_requests_only_can_be_given_defaults() -> None:
    rules = "resources: {container: {defaultRequest: {cpu: 100m}, default: {cpu: 200m, memory: 1Gi}, min: {cpu: 50m}}}"
    assert prove(policy_of(rules)).flaws == ()


# How much is proved


def distinct(count: int) -> Policy:
    return policy_of(*(f"placement: {{nodeSelector: {{a: v{place}}}}}" for place in range(count)))


def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the services whose rules are tried, in order; filled while a proof runs."""
    names: list[str] = []

    def noted(sample: Any, service: Service) -> None:
        if sample is CORPUS[0]:
            names.append(service.name)

    monkeypatch.setattr(prover, "rewrite_failure", noted)
    return names


def test_services_without_rules_need_no_proof() -> None:
    assert prove(policy_of("quota: {windows: [{window: 1m, hard: {pods: 1}}]}")) == Proof((), 0, 0)


def test_equal_rules_are_proved_once_whoever_wrote_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tried(monkeypatch)
    one, other = "placement: {nodeSelector: {a: b, c: d}}", "placement: {nodeSelector: {c: d, a: b}}"
    proof = prove(
        policy_of(one, "modes: {placement: Warn}, slaClass: gold, " + other, "placement: {nodeSelector: {a: b}}")
    )
    assert (proof.proved, proof.sets, names) == (2, 2, ["s0", "s2"])


def test_of_too_many_sets_of_rules_some_are_proved_at_even_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "MOST_SETS", 4)
    names = tried(monkeypatch)
    assert prove(distinct(10)) == Proof((), 4, 10)
    assert names == ["s0", "s2", "s5", "s7"]
    assert not prove(distinct(4)).is_sampled


def test_of_rules_that_are_too_long_fewer_are_proved_and_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tried(monkeypatch)
    one = len(prover._encoder.encode((distinct(1).services[0].placement, None)))
    monkeypatch.setattr(prover, "MOST_BYTES", 5 * one)
    assert prove(distinct(10)) == Proof((), 5, 10)
    assert names == ["s0", "s2", "s4", "s6", "s8"]
    monkeypatch.setattr(prover, "MOST_BYTES", 1)
    assert prove(distinct(10)) == Proof((), 1, 10)


def test_a_proof_by_sample_is_a_warning_of_lint_and_on_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "MOST_SETS", 2)
    services = "".join(
        f"- {{name: s{place}, match: {{namespaces: [n{place}]}}, placement: {{nodeSelector: {{a: v{place}}}}}}}\n"
        for place in range(3)
    )
    text = f"{HEAD}services:\n{services}"
    [warning] = warnings(text)
    assert warning.startswith(
        "3:1: services: [...]: proved on 2 of 3 sets of rules: let services share placement and resources"
    )
    assert f"warning: -:{warning}" in CliRunner().invoke(root, ["policy", "lint", "-"], input=text).stderr
    assert response(asked(object=config_map(text)))["warnings"] == [f"policy.yaml:{warning}"]
    assert warnings(text.partition("- {name: s2")[0]) == []


def test_the_document_in_force_is_not_proved_again_when_another_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tried(monkeypatch)
    old, new = (with_service(f"  placement: {{nodeSelector: {{a: {value}}}}}\n") for value in "bc")
    assert asked(operation="UPDATE", object=config_map(new), oldObject=config_map(old)).errors == ()
    assert names == ["payment-api"]


def test_a_minimum_for_whole_pods_is_the_users_to_reach_and_no_flaw() -> None:
    assert prove(policy_of("resources: {pod: {min: {cpu: 100m}}}")).flaws == ()
