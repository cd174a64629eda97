"""The proof at policy load: rejections, blamed entries, tolerated cases, and its size."""

from typing import Any

import pytest
from click.testing import CliRunner

from tests.core.document.documents import HEAD, build_document, list_problems, list_warnings
from tests.core.policy_changes.policy_review import config_map, judge_review, read_response
from webhook.cli import root
from webhook.core.admission.mutation import rewrite
from webhook.core.document import loading
from webhook.core.document.yaml import reader
from webhook.core.kubernetes.pod import Pod
from webhook.core.patch import PatchOperation, add
from webhook.core.policy.model import Policy, Service
from webhook.core.proof import Proof, prove, prover
from webhook.core.proof.corpus import CORPUS

ZONE = "topology.kubernetes.io/zone"
TERMS = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "


def policy_of(*services: str) -> Policy:
    """Return a policy of services with these stanzas, which the rules of the document have not checked."""
    listed = "".join(
        f"- {{name: s{place}, match: {{namespaces: [n{place}]}}, {text}}}\n" for place, text in enumerate(services)
    )
    return loading._convert_policy(reader.read_yaml(f"{HEAD}services:\n{listed}".encode()).root)


def format_native_affinity(*expressions: str) -> str:
    """Return an affinity whose one required term has these expressions, each written as key, operator, values."""
    return TERMS + "[{matchExpressions: [" + ", ".join(f"{{{text}}}" for text in expressions) + "]}]}}}"


CONTRADICTORY = f"nodeSelector: {{{ZONE}: a}}, " + format_native_affinity(f"key: {ZONE}, operator: In, values: [b]")
"""A placement that no node can fulfil."""


# The corpus


def test_corpus_pods_are_distinct() -> None:
    assert len(CORPUS) >= 30
    assert len({sample.name for sample in CORPUS}) == len(CORPUS)
    assert len({sample.raw for sample in CORPUS}) == len(CORPUS)


def test_plain_pods_have_no_rewrite_failure() -> None:
    rules = (
        "placement: {schedulerName: x, nodeSelector: {a: b}, topology: [{level: Zone, in: [z]}], priorityClassName: p,"
        " runtimeClassName: r, topologySpreadConstraints: ["
        "{maxSkew: 1, topologyKey: t, whenUnsatisfiable: DoNotSchedule}]}"
    )
    [service] = policy_of(rules).services
    plain = [sample for sample in CORPUS if sample.is_plain]
    assert plain
    assert [prover.find_rewrite_failure(sample, service) for sample in plain] == [None] * len(plain)


# Flaws


@pytest.mark.parametrize(
    "placement",
    [
        CONTRADICTORY,
        "nodeSelector: {cores: '4'}, " + format_native_affinity("key: cores, operator: Gt, values: ['8']"),
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
def test_rules_are_proved_in_every_mode(mode: str) -> None:
    assert prove(policy_of(f"modes: {{placement: {mode}}}, placement: {{{CONTRADICTORY}}}")).flaws


def test_rewrite_that_never_becomes_stable_is_a_flaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewrite_unstably(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        own = pod.spec.tolerations
        toleration = {"key": "again", "operator": "Exists"}
        more = add([toleration], "spec", "tolerations") if own is None else add(toleration, "spec", "tolerations", "-")
        return (*rewrite(pod, service, policy_hash), more)

    monkeypatch.setattr(prover, "rewrite", rewrite_unstably)
    [line] = list_problems(build_document("  placement: {nodeSelector: {a: b}}\n"))
    assert line.startswith("6:3: services[0].placement: {...}: a plain Pod is changed again by every rewrite")
    assert "/spec/tolerations/-" in line
    assert line.endswith("report it, and use simpler rules until it is fixed")


def test_rewrite_that_leaves_rules_unfulfilled_is_a_flaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rewrite_without_node_selector(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        made = rewrite(pod, service, policy_hash)
        return tuple(operation for operation in made if "nodeSelector" not in operation.path)

    monkeypatch.setattr(prover, "rewrite", rewrite_without_node_selector)
    found = list_problems(build_document("  placement: {nodeSelector: {disk: ssd}}\n"))
    assert any("PlacementUnfulfilled: spec.nodeSelector[disk] is missing" in line for line in found)


def test_rewrite_that_raises_is_a_flaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        if pod.spec.init_containers:
            raise ZeroDivisionError("of ours")
        return rewrite(pod, service, policy_hash)

    monkeypatch.setattr(prover, "rewrite", fail)
    [flaw] = prove(policy_of("resources: {container: {max: {cpu: 8}}}")).flaws
    assert (flaw.service, flaw.stanza) == (0, "resources")
    assert flaw.reason == "a Pod with init containers cannot be rewritten: ZeroDivisionError('of ours')"


def test_patch_that_cannot_be_applied_is_a_flaw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prover, "rewrite", lambda *_: (add(1, "spec", "nothing", "here"),))
    [flaw] = prove(policy_of("placement: {nodeSelector: {a: b}}")).flaws
    assert "cannot be rewritten: JsonP" in flaw.reason


# Causes of flaws


def test_flaw_of_inherited_defaults_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_rewrites_with(monkeypatch, "placement")
    services = "".join(f"- {{name: s{place}, match: {{namespaces: [n{place}]}}}}\n" for place in range(3))
    [line] = list_problems(f"{HEAD}defaults:\n  placement: {{nodeSelector: {{a: b}}}}\nservices:\n{services}")
    assert line.startswith("4:3: defaults.placement: {...}: a plain Pod cannot be rewritten: ")


def fail_rewrites_with(monkeypatch: pytest.MonkeyPatch, *stanzas: str, all_required: bool = False) -> None:
    """Make rewrites fail for services with any of these stanzas, or with all of them."""

    def fail(pod: Pod, service: Service, policy_hash: str) -> tuple[PatchOperation, ...]:
        if (all if all_required else any)(getattr(service, stanza) is not None for stanza in stanzas):
            raise ZeroDivisionError
        return rewrite(pod, service, policy_hash)

    monkeypatch.setattr(prover, "rewrite", fail)


BOTH = "placement: {nodeSelector: {a: b}}, resources: {container: {max: {cpu: 8}}}"


@pytest.mark.parametrize(
    ("stanzas", "all_required", "expected_stanzas"),
    [
        (("placement",), False, ["placement"]),
        (("resources",), False, ["resources"]),
        (("placement", "resources"), False, ["placement", "resources"]),
        (("placement", "resources"), True, ["placement"]),
    ],
)
def test_flaw_names_the_stanza_that_causes_it(
    monkeypatch: pytest.MonkeyPatch, stanzas: tuple[str, ...], *, all_required: bool, expected_stanzas: list[str]
) -> None:
    fail_rewrites_with(monkeypatch, *stanzas, all_required=all_required)
    assert [flaw.stanza for flaw in prove(policy_of(BOTH)).flaws] == expected_stanzas


def test_every_service_with_equal_bad_rules_has_a_flaw(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_rewrites_with(monkeypatch, "resources")
    proof = prove(
        policy_of("placement: {nodeSelector: {a: b}}", BOTH, "quota: {windows: [{window: 1m, hard: {pods: 1}}]}", BOTH)
    )
    assert [(flaw.service, flaw.stanza) for flaw in proof.flaws] == [(1, "resources"), (3, "resources")]
    assert (proof.proved, proof.sets) == (2, 2)


# Cases without a flaw


@pytest.mark.parametrize("rule", ["Deny", "Keep", "Override"])
def test_conflict_of_a_user_is_no_flaw_of_the_policy(rule: str) -> None:
    placement = (
        "schedulerName: ours, priorityClassName: ours, runtimeClassName: ours, nodeSelector: {disk: ssd},"
        " topologySpreadConstraints: ["
        "{maxSkew: 9, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}"
        f"], topology: [{{level: Zone, in: [zone-x]}}], onConflict: {{default: {rule}}}"
    )
    outside = "Deny" if rule == "Deny" else "Clamp"
    resources = f"whenOutside: {outside}, container: {{max: {{cpu: 1m}}}}, pod: {{max: {{memory: 1}}}}"
    assert prove(policy_of(f"placement: {{{placement}}}, resources: {{{resources}}}")) == Proof((), 1, 1)


def test_defaults_for_limits_only_or_requests_only_have_no_flaw() -> None:
    rules = "resources: {container: {defaultRequest: {cpu: 100m}, default: {cpu: 200m, memory: 1Gi}, min: {cpu: 50m}}}"
    assert prove(policy_of(rules)).flaws == ()


def test_ratios_and_classes_that_only_the_user_can_satisfy_have_no_flaw() -> None:
    ratio = "maxLimitRequestRatio: {cpu: 2}"
    rules = f"container: {{{ratio}}}, pod: {{qosClasses: [Guaranteed], {ratio}}}"
    assert prove(policy_of(f"resources: {{{rules}}}")).flaws == ()


def test_ratios_are_proved_with_the_defaults_that_satisfy_them() -> None:
    rules = (
        "defaultRequest: {cpu: 100m}, max: {cpu: 8}, maxLimitRequestRatio: {cpu: 3}, defaultRequestRatio: {cpu: 0.4}"
    )
    assert prove(policy_of(f"resources: {{container: {{{rules}}}}}")).flaws == ()
    [flaw] = prove(
        policy_of(
            "resources: {container: {defaultLimitRatio: {cpu: 4}, default: {}, min: {cpu: 1}}, pod: {max: {cpu: 2}}}"
        )
    ).flaws
    assert "limits[cpu] is '4', at most '2' is allowed" in flaw.reason


# Sampling


def build_distinct_services(count: int) -> Policy:
    return policy_of(*(f"placement: {{nodeSelector: {{a: v{place}}}}}" for place in range(count)))


def record_proved_services(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the services whose rules are proved, in order; filled while a proof runs."""
    names: list[str] = []

    def record_service(sample: Any, service: Service) -> None:
        if sample is CORPUS[0]:
            names.append(service.name)

    monkeypatch.setattr(prover, "find_rewrite_failure", record_service)
    return names


def test_services_without_rules_need_no_proof() -> None:
    assert prove(policy_of("quota: {windows: [{window: 1m, hard: {pods: 1}}]}")) == Proof((), 0, 0)


def test_equal_rules_of_several_services_are_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = record_proved_services(monkeypatch)
    first, second = "placement: {nodeSelector: {a: b, c: d}}", "placement: {nodeSelector: {c: d, a: b}}"
    proof = prove(
        policy_of(first, "modes: {placement: Warn}, slaClass: gold, " + second, "placement: {nodeSelector: {a: b}}")
    )
    assert (proof.proved, proof.sets, names) == (2, 2, ["s0", "s2"])


def test_too_many_sets_of_rules_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "SETS_MAX", 4)
    names = record_proved_services(monkeypatch)
    assert prove(build_distinct_services(10)) == Proof((), 4, 10)
    assert names == ["s0", "s2", "s5", "s7"]
    assert not prove(build_distinct_services(4)).is_sampled


def test_long_rules_reduce_the_sample_to_at_least_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    names = record_proved_services(monkeypatch)
    size = len(prover._encoder.encode((build_distinct_services(1).services[0].placement, None)))
    monkeypatch.setattr(prover, "RULES_BYTES_MAX", 5 * size)
    assert prove(build_distinct_services(10)) == Proof((), 5, 10)
    assert names == ["s0", "s2", "s4", "s6", "s8"]
    monkeypatch.setattr(prover, "RULES_BYTES_MAX", 1)
    assert prove(build_distinct_services(10)) == Proof((), 1, 10)


def test_sampled_proof_is_a_warning_of_lint_and_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prover, "SETS_MAX", 2)
    services = "".join(
        f"- {{name: s{place}, match: {{namespaces: [n{place}]}}, placement: {{nodeSelector: {{a: v{place}}}}}}}\n"
        for place in range(3)
    )
    text = f"{HEAD}services:\n{services}"
    [warning] = list_warnings(text)
    assert warning.startswith(
        "3:1: services: [...]: proved on 2 of 3 sets of rules: let services share placement and resources"
    )
    assert f"warning: -:{warning}" in CliRunner().invoke(root, ["policy", "lint", "-"], input=text).stderr
    assert read_response(judge_review(object=config_map(text)))["warnings"] == [f"policy.yaml:{warning}"]
    assert list_warnings(text.partition("- {name: s2")[0]) == []


def test_update_does_not_prove_the_old_policy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = record_proved_services(monkeypatch)
    old, new = (build_document(f"  placement: {{nodeSelector: {{a: {value}}}}}\n") for value in "bc")
    assert judge_review(operation="UPDATE", object=config_map(new), oldObject=config_map(old)).errors == ()
    assert names == ["payment-api"]


def test_minimum_for_pods_is_no_flaw() -> None:
    assert prove(policy_of("resources: {pod: {min: {cpu: 100m}}}")).flaws == ()


def test_the_pods_of_each_variant_are_proved() -> None:
    variants = f"[{{name: spot, weight: 1, nodeSelector: {{a: b}}}}, {{name: odd, {CONTRADICTORY}}}]"
    [flaw] = (found := prove(policy_of(f"placement: {{shares: {{variants: {variants}}}}}"))).flaws
    assert (flaw.service, flaw.stanza, found.sets) == (0, "placement", 3)
    assert flaw.reason.startswith("variant odd: a plain Pod, which sets none of these fields, cannot satisfy it: ")
