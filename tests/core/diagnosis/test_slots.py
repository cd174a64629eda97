"""Slots in decision records and in the reports made from them: which variant a Pod got, and why another one."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from tests.core.recording import OWNER, Recorder
from tests.core.reviewing import NOW_US, REPLICA_SETS, pod, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.commands.pages.pod_report_page import format_report
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission.decision import Half
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Report, Surroundings, diagnose
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.diagnosis.recomputation import list_rule_notes, recompute
from webhook.core.diagnosis.report import VariantReport
from webhook.core.diagnosis.variant_states import list_variant_states
from webhook.core.reporting.decision_record import DecisionRecord, RecordedSlot
from webhook.core.reporting.record_codec import decode_shared_record
from webhook.interceptor import Interceptor
from webhook.slots import SlotChooser

POLICY = policy_of("""
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      base: {variant: on-demand, pods: 1}
      variants:
      - {name: spot, weight: 1, nodeSelector: {capacity: spot}, tolerations: [{key: spot, operator: Exists}]}
      - {name: on-demand, nodeSelector: {capacity: on-demand}}
""")


class Shop:
    """Reviews of a ReplicaSet's Pods, with their records."""

    def __init__(self) -> None:
        self.clock, self.recorder = VirtualClock(NOW_US), Recorder()
        self.store, self.policies = MemoryStore(self.clock), FixedPolicy(POLICY, self.clock)
        namespaces = FixedNamespaces({"shop": {}})
        slots = SlotChooser(MemorySlots(self.clock), self.store)
        self.interceptor = Interceptor(self.policies, self.store, namespaces, self.recorder, pod_slots=slots)

    @property
    def policy(self) -> CompiledPolicy:
        return self.policies.get_current()

    async def create(self, uid: str) -> Admission:
        made = pod()
        made["metadata"]["ownerReferences"] = [OWNER]
        return await admit(self.interceptor, Ask(made, "shop", uid, REPLICA_SETS))

    async def open_spot(self) -> None:
        counters = self.policy.shares["web"].variants[0].counters
        assert counters is not None
        await self.store.record_outcomes(counters, [Outcomes.from_single(ok=False, latency_us=0)])
        self.clock.set(NOW_US + 2_000_000)
        await self.store.tick([counters])

    def records(self) -> tuple[DecisionRecord, DecisionRecord]:
        """Return the last mutating and the last validating record."""
        validate, mutate = self.recorder.records[:2]
        return mutate, validate

    def report(
        self,
        uid: str,
        admission: Admission,
        *,
        with_records: bool = True,
        variants: Mapping[str, tuple[VariantReport, ...]] = MappingProxyType({}),
    ) -> Report:
        metadata = {**admission.pod["metadata"], "creationTimestamp": "2027-01-15T08:00:00Z"}
        existing = msgspec.convert({**admission.pod, "metadata": metadata, "status": {}}, ReportedPod)
        records = tuple(self.recorder.records) if with_records else ()
        around = Surroundings(NOW_US, policies={self.policy.hash: self.policy}, in_force=self.policy)
        around = replace(around, variants=variants)
        found = diagnose(PodFacts("shop", metadata["name"], uid, existing, records=records), around)
        assert found is not None
        return found


async def create_two(*, is_open: bool) -> tuple[Shop, Admission]:
    shop = Shop()
    await shop.create("u1")
    if is_open:
        await shop.open_spot()
    return shop, await shop.create("u2")


async def test_records_have_the_slot_and_the_variant() -> None:
    shop, _ = await create_two(is_open=False)
    mutate, validate = shop.records()
    assert mutate.slot == RecordedSlot(2, "spot", reason="slot 2 of ReplicaSet web-7d4b9c is spot")
    assert validate.slot == RecordedSlot(2, "spot")
    assert msgspec.json.decode(msgspec.json.encode(validate))["slot"] == {"number": 2, "variant": "spot"}
    assert [decode_shared_record(kept.shared).slot for kept in shop.recorder.kept[:2]] == [validate.slot, mutate.slot]


async def test_records_of_a_pod_that_fell_back_have_both_variants_and_the_reason() -> None:
    shop, admission = await create_two(is_open=True)
    mutate, validate = shop.records()
    assert mutate.slot is not None
    assert mutate.slot.reason.startswith("slot 2 of ReplicaSet web-7d4b9c is spot; spot is OPEN (unschedulable: ")
    assert (mutate.slot.variant, mutate.slot.intended) == ("on-demand", "spot")
    assert validate.slot == RecordedSlot(2, "on-demand", "spot")
    assert admission.mutated.audit.items() >= {"slot": "2", "variant": "on-demand", "intended-variant": "spot"}.items()


async def test_a_pod_without_a_slot_is_recorded_as_before() -> None:
    shop = Shop()
    await admit(shop.interceptor, Ask(pod(), "shop", "u1", "alice"))
    assert [record.slot for record in shop.recorder.records] == [None, None]
    own = msgspec.msgpack.decode(shop.recorder.kept[0].own)
    assert len(own) == 9, "the packed form of older replicas"


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_recomputed_decision_is_the_recorded_one(*, is_open: bool) -> None:
    shop, admission = await create_two(is_open=is_open)
    for record, decision in zip(shop.records(), (admission.mutated, admission.validated), strict=True):
        again = recompute(record, shop.policy)
        assert (again.half, again.verdict, again.findings) == (decision.half, decision.verdict, decision.findings)
        if record.half is Half.MUTATE:
            of_spec = [[op for op in found.patch if op.path.startswith("/spec")] for found in (again, decision)]
            assert of_spec[0] == of_spec[1]
            assert again.steps[-2] == decision.steps[-2]
    index = 1 if is_open else 0
    rules = {note.rule for note in list_rule_notes(shop.records()[0], shop.policy) if note.marks}
    assert {f"placement.shares.variants[{index}].{field}" for field in ("name", "nodeSelector[capacity]")} <= rules
    assert ("placement.shares.variants[0].tolerations[0]" in rules) is not is_open


async def test_explain_says_slot_variant_and_why_it_fell_back() -> None:
    shop, admission = await create_two(is_open=True)
    page = format_report(shop.report("u2", admission))
    assert "\n  slot      slot 2 of ReplicaSet web-7d4b9c is spot; spot is OPEN (unschedulable: no node for" in page
    assert ": the Pod gets on-demand\n" in page


async def test_explain_reads_the_slot_off_a_pod_without_records() -> None:
    shop, admission = await create_two(is_open=True)
    page = format_report(shop.report("u2", admission, with_records=False))
    assert "\n  slot      slot 2 is on-demand instead of spot; no record says why\n" in page
    shop, admission = await create_two(is_open=False)
    page = format_report(shop.report("u2", admission, with_records=False))
    assert "\n  slot      slot 2 is spot\n" in page


def build_shares(*variants: dict[str, Any]) -> dict[str, Any]:
    """Return the shares of a service as `GET /status` has them."""
    return {"base": None, "variants": [{"hasBreaker": True, "breaker": None, **variant} for variant in variants]}


def build_breaker(state: str, until: str | None = None) -> dict[str, Any]:
    return {"state": state, "reason": "INC-1", "openUntil": until}


SPOT, LAST = {"name": "spot", "breaker": build_breaker("OPEN", "2027-01-15T08:09:41.200Z")}, {"name": "last"}
LAST |= {"hasBreaker": False}


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ([SPOT, LAST], "spot OPEN (INC-1), probes from 08:09:41Z: last takes its Pods"),
        (
            [{"name": "spot", "breaker": build_breaker("FORCED_OPEN", "2027-01-15T08:09:41.200Z")}, LAST],
            "spot FORCED_OPEN (INC-1), until 08:09:41Z: last takes its Pods",
        ),
        (
            [{"name": "spot", "breaker": build_breaker("HALF_OPEN")}, LAST],
            "spot HALF_OPEN (INC-1): some Pods probe it, last takes the others",
        ),
        ([{"name": "spot", "breaker": build_breaker("CLOSED")}, LAST], "spot CLOSED"),
        (
            [SPOT, {"name": "arm", "breaker": build_breaker("CLOSED")}, LAST],
            "spot OPEN (INC-1), probes from 08:09:41Z: arm takes its Pods; arm CLOSED",
        ),
        ([SPOT, SPOT | {"name": "arm"}, LAST], "last takes its Pods; arm OPEN"),
        ([{"name": "spot"}, LAST], "spot unknown"),
        (
            [{"name": "spot", "breaker": build_breaker("CLOSED")}, LAST, SPOT | {"name": "arm", "ofCandidate": True}],
            "arm OPEN (INC-1), probes from 08:09:41Z, of the candidate",
        ),
    ],
)
async def test_explain_shows_the_present_breakers_of_the_variants(
    variants: list[dict[str, Any]], expected: str
) -> None:
    shop, admission = await create_two(is_open=True)
    states = {"web": list_variant_states(build_shares(*variants)), "other": ()}
    [line] = [
        line for line in format_report(shop.report("u2", admission, variants=states)).splitlines() if "  shares" in line
    ]
    assert expected in line


async def test_a_report_has_the_present_breakers_for_programs_and_none_of_a_pod_without_a_slot() -> None:
    shop, admission = await create_two(is_open=True)
    states = {"web": list_variant_states(build_shares(SPOT, LAST))}
    found = msgspec.to_builtins(shop.report("u2", admission, variants=states))
    until = "2027-01-15T08:09:41.200Z"
    spot = {"name": "spot", "state": "OPEN", "reason": "INC-1", "until": until, "takenBy": "last"}
    assert list(found["shares"]) == [spot, {"name": "last", "hasBreaker": False}]
    without = msgspec.json.decode(msgspec.json.encode(admission.pod))
    del without["metadata"]["labels"]["podgate.io/variant"]
    report = shop.report("u3", Admission(admission.mutated, admission.validated, without), variants=states)
    assert (report.slot, report.shares) == (None, ())
