"""A policy that differs in a few services from the one in force: only these are decoded and compiled anew."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.policy_file import FakeClock, Recorder
from tests.core.document.changing_documents import CHANGES, ChangingDocument, Follower
from tests.core.strategies import examples
from tests.harness.overrides import FixedClock, OverridesRecorder, entry
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.core.compiled_policy import CompiledPolicy, compile_services
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.policy_in_force.policy_receiver import PolicyReceiver

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"


def write_policy(changed: str = "gold", services: int = 30, head: str = "") -> bytes:
    """Return a policy; `changed`: the class of service s7."""
    listed = "".join(
        f"- name: s{number}\n  match: {{namespaces: [n{number}]}}\n  slaClass: {changed if number == 7 else 'gold'}\n"
        "  quota: {windows: [{window: 1m, hard: {pods: 5}}]}\n"
        for number in range(services)
    )
    return f"{HEAD}{head}services:\n{listed}".encode()


class Server:
    """Overrides and policy as in a server, checked in a process."""

    def __init__(self) -> None:
        self.overrides = ActiveOverrides(OverridesRecorder(), FixedClock(), "here")
        active = ActivePolicy(self.overrides, VirtualClock())
        self.overrides.prepare = active.prepare
        self.receiver = PolicyReceiver(Recorder(), FakeClock(), PolicyProcess(), active=active)

    async def offer(self, raw: bytes) -> CompiledPolicy:
        assert await self.receiver.on_document(raw, "policy.yaml"), self.receiver.list_errors()
        compiled = self.receiver.get_current()
        assert compiled is not None
        return compiled


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the services that are compiled from now on."""
    names: list[str] = []
    original = CounterPlan.from_service

    def record(service: object, *arguments: object, **keywords: object) -> object:
        names.append(service.name)  # type: ignore[attr-defined]
        return original(service, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(CounterPlan, "from_service", record)
    return names


async def test_a_change_of_one_service_compiles_only_that_one(compiled: list[str]) -> None:
    server = Server()
    before = await server.offer(write_policy())
    assert len(compiled) == 30
    compiled.clear()
    after = await server.offer(write_policy("silver"))
    assert compiled == ["s7"]
    assert after.services["s7"].sla_class == "silver"
    same = [name for name, part in after.parts.items() if part is before.parts[name]]
    assert len(same) == 29
    assert after.loaded == load(write_policy("silver"), Purpose.SERVE).policy


async def test_after_an_invalid_document_a_change_is_still_small(compiled: list[str]) -> None:
    server = Server()
    await server.offer(write_policy())
    assert not await server.receiver.on_document(write_policy("golden"), "policy.yaml")
    compiled.clear()
    await server.offer(write_policy("silver"))
    assert compiled == ["s7"]


async def test_another_default_compiles_each_service(compiled: list[str]) -> None:
    server = Server()
    await server.offer(write_policy())
    compiled.clear()
    after = await server.offer(write_policy(head="defaults: {failureMode: Closed}\n"))
    assert len(compiled) == 30
    assert after.loaded == load(write_policy(head="defaults: {failureMode: Closed}\n"), Purpose.SERVE).policy


async def test_services_under_overrides_are_not_taken_for_those_of_the_document(compiled: list[str]) -> None:
    server = Server()
    await server.offer(write_policy())
    await server.overrides.on_document(entry("s3").encode(), "overrides.yaml")
    compiled.clear()
    under = await server.offer(write_policy("silver"))
    assert sorted(compiled) == ["s3", "s7"]
    await server.overrides.on_document(b"", "overrides.yaml")
    current = server.receiver.get_current()
    assert current is not None
    assert under.plans["s3"] != current.plans["s3"]
    assert dict(current.plans) == dict(CompiledPolicy(load(write_policy("silver"), Purpose.SERVE).policy).plans)


BREAKER = "  breaker: {quotaExceeded: {}}\n"
GUARD = "breakerGuard: {maxOpenPercent: 50}\n"
POOL = "pools: [{name: big, windows: [{window: 1h, hard: {pods: 100}}]}]\n"
GUARANTEED = "  pool: big\n  guaranteed: {windows: [{window: 1h, hard: {pods: %d}}]}\n"


def write_services(stanzas: Sequence[str], tail: str) -> bytes:
    """Return a policy with one service for each entry of `stanzas`."""
    listed = "".join(
        f"- name: s{number}\n  match: {{namespaces: [n{number}]}}\n{own}" for number, own in enumerate(stanzas)
    )
    return f"{HEAD}services:\n{listed}{tail}".encode()


@pytest.mark.parametrize(
    ("before", "after", "tail", "expected"),
    [
        ([*[BREAKER] * 7, "", ""], [*[BREAKER] * 8, ""], GUARD, [f"s{number}" for number in range(8)]),
        ([GUARANTEED % 10, "  pool: big\n", "", ""], [GUARANTEED % 20, "  pool: big\n", "", ""], POOL, ["s0", "s1"]),
    ],
    ids=["breakerGuard", "guarantees"],
)
def test_a_kept_service_is_compiled_anew_if_something_else_counts_for_it(
    before: Sequence[str], after: Sequence[str], tail: str, expected: Sequence[str], compiled: list[str]
) -> None:
    follower = Follower()
    former = CompiledPolicy(follower.load(write_services(before, tail)))
    loaded = follower.load(write_services(after, tail))
    assert len(follower.new) == 1
    compiled.clear()
    parts = list(compile_services(loaded, former=former))
    assert compiled == expected
    assert parts == list(compile_services(loaded))


def load_or_none(follower: Follower, raw: bytes) -> LoadedPolicy | None:
    try:
        return follower.load(raw)
    except DocumentError:
        return None


@given(st.integers(0, 2**32))
@examples(60)
def test_kept_services_are_compiled_as_anew(seed: int) -> None:
    document, follower = ChangingDocument(seed), Follower()
    former: CompiledPolicy | None = None
    for _ in range(CHANGES):
        loaded = load_or_none(follower, document.raw)
        if loaded is None:
            document.take_back()
        else:
            parts = list(compile_services(loaded, former=former))
            assert parts == list(compile_services(loaded)), document.raw.decode()
            former = CompiledPolicy(loaded, {part.service.name: part for part in parts})
        document.change()
