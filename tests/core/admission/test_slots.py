"""Slots at admission: Pods of a workload get a variant, keep it, and nobody else may choose one."""

from typing import Any

import msgspec
import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, pod, policy_of
from tests.core.shares.policies import SERVICES
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.findings import Code
from webhook.core.patch import apply
from webhook.core.quota import CounterPlan
from webhook.core.shares import PodSlot, SharesPlan, SlotOwner
from webhook.interceptor import Interceptor
from webhook.ports import TakenSlot

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
LABEL, SLOT, CLAIM = "podgate.io/variant", "podgate.io/slot", "podgate.io/slot-claim"
INTENDED = "podgate.io/intended-variant"
COST = "controller.kubernetes.io/pod-deletion-cost"


class Numbered:
    """A `ports.PodSlots` that numbers claims, and lets every Pod in a slot of `lost` fall back."""

    def __init__(self) -> None:
        self.claims: list[str] = []
        self.lost: set[int] = set()

    async def take(
        self,
        shares: SharesPlan,
        plan: CounterPlan,  # noqa: ARG002  as in the port
        owner: SlotOwner,
        claim: str,
        *,
        is_dry_run: bool,  # noqa: ARG002  as in the port
    ) -> TakenSlot:
        self.claims.append(claim)
        slot = len(self.claims)
        intended = shares.split.names[shares.split.find_variant(slot)]
        found = shares.choose_variant(slot, lambda _: slot in self.lost)
        return TakenSlot(PodSlot(slot, found.name, intended, claim, owner.kind), f"slot {slot}")


class DividingGate(Gate):
    def __init__(self, services: str = SERVICES) -> None:
        super().__init__(policy_of(services))
        self.numbers, made = Numbered(), self.interceptor
        self.interceptor = Interceptor(
            made._choice._policies,
            self.store,
            made._namespaces,
            made._observer,
            pod_slots=self.numbers,
        )

    async def rewrite(self, created: dict[str, Any], user: str = REPLICA_SETS, uid: str = "r1") -> dict[str, Any]:
        """Return the Pod after the mutating half."""
        decision = (await self.ask(Half.MUTATE, object=created, userInfo={"username": user}, uid=uid)).decision
        written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(created))
        apply(decision.patch, written)
        return written

    async def check(self, written: dict[str, Any], user: str = REPLICA_SETS, **request: Any) -> Decision:
        stored = msgspec.json.decode(msgspec.json.encode(written))
        stored["metadata"] |= {"uid": "u1", "name": "web-u1"}
        return await self.validate(object=stored, userInfo={"username": user}, **request)


def owned(**metadata: Any) -> dict[str, Any]:
    """Build a Pod of a ReplicaSet with the managedFields that an API server has recorded of its creator."""
    created = pod({"app": "web", **metadata.pop("labels", {})}, metadata.pop("annotations", None))
    labels = {f"f:{key}": {} for key in created["metadata"]["labels"]}
    managed = [{"manager": "kube-controller-manager", "fieldsV1": {"f:metadata": {"f:labels": labels}}}]
    created["metadata"] |= {"ownerReferences": [OWNER], "managedFields": managed, **metadata}
    return created


def marked(written: dict[str, Any], intended: str) -> dict[str, Any]:
    """Return a Pod that says that it fell back from a variant."""
    annotations = {**written["metadata"]["annotations"], INTENDED: intended}
    return {**written, "metadata": {**written["metadata"], "annotations": annotations}}


async def test_each_pod_is_placed_by_the_variant_of_its_slot() -> None:
    gate = DividingGate()
    first, second = [await gate.rewrite(owned(), uid=uid) for uid in ("r1", "r2")]
    assert (first["metadata"]["labels"][LABEL], second["metadata"]["labels"][LABEL]) == ("on-demand", "spot")
    assert second["spec"]["nodeSelector"] == {"disk": "ssd", "capacity": "spot"}
    assert second["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    annotations = second["metadata"]["annotations"]
    assert {key: annotations[key] for key in (SLOT, CLAIM, COST)} == {SLOT: "2", CLAIM: "r2", COST: "-2"}
    for written in (first, second):
        assert (await gate.check(written)).verdict is Verdict.ADMIT


async def test_a_pod_that_falls_back_keeps_its_slot_and_goes_first() -> None:
    gate = DividingGate()
    gate.numbers.lost = {2}
    await gate.rewrite(owned())
    written = await gate.rewrite(owned(), uid="r2")
    assert written["metadata"]["labels"][LABEL] == "on-demand"
    assert written["metadata"]["annotations"][SLOT] == "2"
    assert written["metadata"]["annotations"][COST] == "-1000002"
    assert written["metadata"]["annotations"][INTENDED] == "spot"
    assert await gate.rewrite(written, uid="r9") == written
    assert (await gate.check(written)).audit["intended-variant"] == "spot"


async def test_a_pod_that_did_not_fall_back_never_says_so() -> None:
    gate = DividingGate()
    assert INTENDED not in (await gate.rewrite(owned()))["metadata"]["annotations"]
    for forged in ({INTENDED: "on-demand"}, {INTENDED: "on-demand", SLOT: "7", CLAIM: "r2"}):
        written = await gate.rewrite(owned(annotations=forged), uid="r2")
        assert INTENDED not in written["metadata"]["annotations"]
        assert (await gate.check(written)).verdict is Verdict.ADMIT


async def test_a_variant_is_the_slot_s_own_by_the_policy_that_gave_it() -> None:
    """The policy may change between the two calls of an admission."""
    gate = DividingGate()
    written = await gate.rewrite(owned())
    assert written["metadata"]["annotations"][SLOT] == "1"
    written["metadata"]["annotations"][SLOT] = "2"  # of spot by the policy of today
    decision = await gate.check(written)
    assert (decision.verdict, decision.audit["variant"]) == (Verdict.ADMIT, "on-demand")
    assert "intended-variant" not in decision.audit


async def test_another_call_of_the_same_admission_keeps_the_slot() -> None:
    gate = DividingGate()
    written = await gate.rewrite(owned())
    again = await gate.rewrite(written, uid="r9")
    assert again == written
    assert gate.numbers.claims == ["r1"]


async def test_an_annotation_with_the_name_of_the_label_is_no_label() -> None:
    gate, created = DividingGate(), owned(annotations={LABEL: "spot"})
    [sent] = created["metadata"]["managedFields"]
    sent["fieldsV1"]["f:metadata"]["f:annotations"] = {f"f:{LABEL}": {}}
    sent["fieldsV1"]["f:spec"] = {"f:containers": {'k:{"name":"c"}': {"f:name": {}}}}
    written = await gate.rewrite(created)
    assert (await gate.check(written)).status.message == ""
    assert await gate.rewrite(written, uid="r2") == written


async def test_a_claim_in_a_template_is_worth_nothing() -> None:
    gate = DividingGate()
    forged = owned(annotations={SLOT: "1", CLAIM: "other", COST: "5"})
    written = await gate.rewrite(forged)
    assert written["metadata"]["annotations"][CLAIM] == "r1"
    assert written["metadata"]["annotations"][COST] == "-1"


async def test_a_label_that_the_template_has_stays_and_is_denied() -> None:
    """An owner whose selector holds it would make Pods without end if it were overwritten."""
    gate = DividingGate()
    written = await gate.rewrite(owned(labels={LABEL: "spot"}))
    assert written["metadata"]["labels"][LABEL] == "spot"
    assert gate.numbers.claims == []
    decision = await gate.check(written)
    assert [finding.code for finding in decision.findings] == [Code.PLACEMENT_CONFLICT]
    assert "remove the label from the Pod, its template, and the selector" in decision.status.message


async def test_a_pod_of_a_tenant_gets_no_variant_whatever_owner_it_names() -> None:
    gate = DividingGate()
    written = await gate.rewrite(owned(), user=ALICE)
    assert LABEL not in written["metadata"]["labels"]
    assert written["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert (await gate.check(written, ALICE)).verdict is Verdict.ADMIT
    chosen = await gate.rewrite(owned(labels={LABEL: "spot"}), user=ALICE)
    assert (await gate.check(chosen, ALICE)).verdict is Verdict.DENY


async def test_a_variant_that_was_undone_is_missed() -> None:
    gate = DividingGate()
    written = await gate.rewrite(owned())
    del written["spec"]["nodeSelector"]["capacity"]
    assert [finding.code for finding in (await gate.check(written)).findings] == [Code.PLACEMENT_UNFULFILLED]
    written = await gate.rewrite(owned(), uid="r2")
    del written["metadata"]["labels"][LABEL]
    assert "podgate.io/variant] is missing" in (await gate.check(written)).status.message


async def test_slots_do_not_change_later() -> None:
    gate = DividingGate()
    written = await gate.rewrite(owned())
    for kind, key in (("labels", LABEL), ("annotations", SLOT), ("annotations", CLAIM)):
        changed = msgspec.json.decode(msgspec.json.encode(written))
        changed["metadata"][kind][key] = "7"
        decision = await gate.check(changed, ALICE, operation="UPDATE", oldObject=written)
        assert decision.verdict is Verdict.DENY, key
    for before, after in ((written, marked(written, "spot")), (marked(written, "spot"), written)):
        assert (await gate.check(after, ALICE, operation="UPDATE", oldObject=before)).verdict is Verdict.DENY
    bare = await gate.rewrite(owned(), user=ALICE)
    labelled = msgspec.json.decode(msgspec.json.encode(bare))
    labelled["metadata"]["labels"][LABEL] = "spot"
    assert (await gate.check(labelled, ALICE, operation="UPDATE", oldObject=bare)).verdict is Verdict.DENY


async def test_shares_act_only_where_placement_is_enforced() -> None:
    gate = DividingGate(SERVICES + "  modes: {placement: Warn}\n")
    written = await gate.rewrite(owned())
    assert LABEL not in written["metadata"]["labels"]
    assert gate.numbers.claims == []


B_IS_C = {"b": "c"}
TWO_SERVICES = """
- name: fast
  match: {namespaces: [shop], podSelector: {matchLabels: {tier: fast}}}
  placement: FAST
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      variants:
      - {name: spot, weight: 1, nodeSelector: {capacity: spot}, tolerations: [{key: spot, operator: Exists}]}
      - {name: on-demand, weight: 1, nodeSelector: {capacity: on-demand}}
"""


@pytest.mark.parametrize(
    ("fast", "variant", "nodes"),
    [
        ("{allow: {nodeSelectorKeys: [], tolerations: []}}", None, {}),
        ("{nodeSelector: {capacity: reserved}}", None, {"capacity": "reserved"}),
        ("{shares: {variants: [{name: a, weight: 1, nodeSelector: {b: c}}, {name: d, weight: 9}]}}", "d", {}),
        (
            "{shares: {variants: [{name: a, weight: 9, nodeSelector: {b: c}}, {name: spot, weight: 1}]}}",
            "a",
            {"b": "c"},
        ),
    ],
    ids=["allowed", "node labels", "other variants", "a variant of the same name"],
)
async def test_a_pod_that_has_come_to_another_service_keeps_no_slot_of_the_former(
    fast: str, variant: str | None, nodes: dict[str, str]
) -> None:
    gate, created = DividingGate(TWO_SERVICES.replace("FAST", fast)), owned()
    created["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"] = {"f:containers": {}}
    moved = await gate.rewrite(created)
    assert moved["metadata"]["labels"][LABEL] == "spot"
    moved["metadata"]["labels"]["tier"] = "fast"
    written = await gate.rewrite(moved, uid="r2")
    labels, annotations = written["metadata"]["labels"], written["metadata"]["annotations"]
    assert (labels["podgate.io/service"], labels.get(LABEL)) == ("fast", variant)
    assert written["spec"]["nodeSelector"] == nodes
    assert written["spec"]["tolerations"] == []
    expected = {} if variant is None else {SLOT: "2", CLAIM: "r2", COST: "-2"}
    assert {key: annotations[key] for key in (SLOT, CLAIM, COST) if key in annotations} == expected
    assert (await gate.check(written)).status.message == ""


async def test_a_variant_of_a_service_that_the_pod_left_after_the_last_call_is_no_ones_choice() -> None:
    shares = "{shares: {variants: [{name: a, weight: 1, nodeSelector: {b: c}}, {name: d, weight: 9}]}}"
    gate = DividingGate(TWO_SERVICES.replace("FAST", shares))
    written = await gate.rewrite(owned())
    written["metadata"]["labels"]["tier"] = "fast"
    message = (await gate.check(written)).status.message
    assert "podgate.io/service] is 'web'" in message
    assert "did not write" not in message
