"""Names of the fields that cross to the script: its text and both codecs agree on them."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.contract.counter_store import BREAKER
from tests.core.plans import plan_of, standing, window
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.redis_store import codec, open_transport, operations
from webhook.adapters.redis_store.breaker_cache import BreakerCache
from webhook.adapters.redis_store.loss_detector import LossDetector, SettledMark
from webhook.adapters.redis_store.plans import PlanCache
from webhook.adapters.redis_store.script_caller import ScriptCaller
from webhook.adapters.redis_store.store_clock import StoreClock
from webhook.adapters.redis_store.transport import script
from webhook.adapters.redis_store.transport.records import PASSED, PLAN_IN_CALL
from webhook.adapters.redis_store.transport.script import (
    OPERATIONS,
    QUEUE_ACTIONS,
    SHARED,
    SLOT_ACTIONS,
    TEXT,
    expand_records,
)
from webhook.core.quota import Acquire, DeniedBy

PLAN = plan_of(window(60, pods=9), breaker=BREAKER, standing=standing(pods=9))

READ_BY_OTHER_VERSIONS = {
    "RING_HEAD": "last offset behind born windows returned",
    "WINDOW": "newest current sums",
    "RETURNED": "at others",
    "RESET": "asked upto",
    "POD": "expires charged_at generation probe refunded service scope fleet cost high windows source settled",
    "CHARGED_WINDOW": "seconds resources counters",
    "BREAKER_RECORD": "state generation since open_until reason successes leases errors latency events failed early "
    "tripped_at tripped_by reset_at excused asked passed alone",
    "RUN": "interval number outcomes amount streak later sources",
    "LATER": "number outcomes amount sources",
    "LEASE": "uid expires generation",
    "EVENT": "at source",
    "EXCUSE": "source until_us",
    "LIVE_HEAD": "sums over count changes",
    "VIEW": "state generation since_us open_until_us reason probes_leased probes_succeeded tripped_at_us tripped_by "
    "early failed passed alone",
    "ANNOUNCEMENT": "tag service at_us view",
}


def test_records_in_redis_keep_their_order() -> None:
    """Servers of other versions read them: a record may gain fields at its end."""
    assert {name: " ".join(fields) for name, fields in SHARED.items()} == READ_BY_OTHER_VERSIONS


def lua_sources() -> str:
    return "\n".join(path.read_text() for path in sorted(script._FOLDER.rglob("*.lua")))  # type: ignore[attr-defined]


def test_every_operation_is_a_function_of_its_name_in_both_languages() -> None:
    """`acquire` is also that of resizes, a probe is the caller's, and `queue` and `slots` run an action."""
    assert OPERATIONS.keys() - {"resize", "probe"} <= vars(operations).keys()
    for name in OPERATIONS.keys() - {"queue", "slots"} | QUEUE_ACTIONS.keys() | SLOT_ACTIONS.keys():
        assert f"local function {name}(" in TEXT, name


def test_lua_names_fields_instead_of_numbers() -> None:
    """Numbers are left where replies of Redis, its arguments, and the first of a list are read."""
    code = re.sub(r"--[^\n]*", "", lua_sources())
    numbered = set(re.findall(r"\w+\[\d+\]", code))
    assert numbered == {"time[1]", "time[2]", "ARGV[1]", "leases[1]", "later[1]", "cells[1]"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("x = LEASE{expires = f(a, {1, 2}), uid = ',', generation = g}", "x = {',', f(a, {1, 2}), g}"),
        ("EVENT{at = EXCUSE{until_us = 1, source = 's'}, source = b}", "{{'s', 1}, b}"),
        ("pack(EVENT_VALUES{source = b, at = a,})", "pack(a, b)"),
    ],
)
def test_constructor_is_expanded_in_the_order_of_the_record(text: str, expanded: str) -> None:
    assert expand_records(text) == expanded


@pytest.mark.parametrize(
    "text", ["EVENT{at = a}", "EVENT{at = a, at = b}", "EVENT{at = a, source = b, more = c}", "EVENT{at = a"]
)
def test_constructor_with_other_fields_fails(text: str) -> None:
    with pytest.raises(ValueError, match=r"EVENT has|does not end"):
        expand_records(text)


def test_values_of_an_acquire_have_their_names() -> None:
    planned = PlanCache("test").prepare(PLAN)
    request = Acquire(PLAN, "payments", "u", {"pods": 1}, "controller:a", name="web", peek=True, counts_as_event=False)
    asked = operations.acquire(planned, request)
    assert dict(zip(OPERATIONS["acquire"], (*asked.keys, *asked.arguments), strict=True)) == {
        "own_key": planned.keys.ring,
        "pod_key": planned.keys.pod("u"),
        "live_key": planned.keys.live,
        "scope": "",
        "place": "payments/web",
        "cost_text": '{"pods":1}',
        "source": "controller:a",
        "peek": True,
        "is_no_event": True,
    }


def answer(**values: Any) -> list[Any]:
    return [values[name] for name in PASSED["ACQUIRE_ANSWER"]]


def test_receipt_is_read_by_the_names_of_its_answer() -> None:
    figures: Mapping[str, Any] = {
        "at_us": 7,
        "charged": False,
        "repeated": False,
        "used": [9, 8],
        "born_us": 5,
        "charged_us": 3,
    }
    over = [{"number": 1, "used": 9, "asked": 1, "free_at_us": 60, "surge": 0, "own_used": 0, "kept": 0}]
    entries = [[entry[name] for name in PASSED["OVER"]] for entry in over]
    result = answer(**figures, refused=2, would=1, over=entries, view=True, moves=False)
    receipt = codec.decode_receipt(PLAN, result, {"pods": 1})
    assert (receipt.at_us, receipt.used, receipt.charged, receipt.repeated) == (7, (9, 8), False, False)
    assert (receipt.refused, receipt.would_refuse) == (DeniedBy.QUOTA, (DeniedBy.BREAKER,))
    assert [(use.used, use.asked, use.free_at_us) for use in receipt.over] == [(9, 1, 60)]
    assert (
        codec.find_charge_time(
            "acquire", answer(**{**figures, "charged": True}, refused=0, would=0, over=[], view=0, moves=0)
        )
        == 7
    )


def test_unknown_fields_of_an_operation_are_refused() -> None:
    planned = PlanCache("test").prepare(PLAN)
    with pytest.raises(ValueError, match="uids"):
        operations.queue(planned, "forget", uid="a")


def test_plan_has_as_many_values_as_the_script_reads() -> None:
    planned = PlanCache("test").prepare(PLAN)
    in_call = len((*planned.key_names, *PLAN_IN_CALL))
    count = len(PASSED["PLAN"]) - in_call
    assert (
        len(msgspec.msgpack.decode(b"\xdc" + count.to_bytes(2) + bytes(planned.head), type=list[msgspec.Raw])) == count
    )
    details = b"\xdc" + len(PASSED["DETAILS"]).to_bytes(2) + bytes(planned.details)
    assert len(msgspec.msgpack.decode(details, type=list[msgspec.Raw])) == len(PASSED["DETAILS"])


async def test_values_of_the_header_have_their_names() -> None:
    clock, cache = StoreClock(VirtualClock(0), lambda: 7), BreakerCache()
    caller = ScriptCaller(
        open_transport("redis://127.0.0.1:1/0"), "test", clock, cache, SettledMark(clock, LossDetector(int)), late_us=6
    )
    assert dict(zip(PASSED["HEADER"], caller._make_header(plans=3, size=4), strict=True)) == {
        "reading": 7,
        "late": 6,
        "opened": 0,
        "plan_count": 3,
        "size": 4,
    }
