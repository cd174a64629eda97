"""Groups whose release is refused: one member is tried, all are set aside, and wait again whole, within the rate."""

import pytest

from tests.controller.release.group_simulation import SERVICES, SINGLE, GroupSimulation, member_of
from tests.controller.release.release_loop import read_usage
from webhook.errors import GateError

_ROOMY = "pods: 9999"


def build_shop(services: str = SERVICES, rate: int = 300) -> GroupSimulation:
    shop = GroupSimulation(services.replace("pods: 4", _ROOMY).replace("maxPods: 99", "maxPods: 9999"))
    shop.rate = rate
    shop.lead()
    return shop


async def join_refused(shop: GroupSimulation, size: int, name: str = "a") -> list[str]:
    """Let a group join of which every gate is refused; return its uids."""
    uids = [f"{name}{number:03}" for number in range(size)]
    shop.gates.refused.update(uids)
    await shop.join(member_of(name, size), *uids)
    return uids


@pytest.mark.parametrize("services", [SINGLE, SERVICES.replace("1h, whenExpired: Keep", "15m, whenExpired: Delete")])
async def test_a_large_group_that_was_refused_is_released_whole_when_the_cause_is_gone(services: str) -> None:
    shop = build_shop(services)
    uids = await join_refused(shop, 256)
    await shop.run_rounds(120)
    assert len(shop.gates.refusals) <= 6, "one member of it is tried: after 5 s, 10 s, 20 s, 40 s"
    assert await read_usage(shop) == 0
    assert shop.waiting == {"web": 256}
    rows = await shop.read_rows()
    assert {row.why.partition(";")[0] for row in rows.values()} == {"cannot release: HTTP 403: it is refused"}
    shop.gates.refused.clear()
    await shop.run_rounds(62)
    assert sorted(shop.gates.ungated) == uids
    assert (await read_usage(shop), shop.gates.deleted, shop.waiting) == (256, [], {"web": 0})
    assert len(shop.released) == 256


async def test_many_refused_groups_come_back_whole_one_a_second() -> None:
    shop = build_shop(SINGLE)
    for number in range(24):
        await join_refused(shop, 8, f"g{number:02}-")
    await shop.run_rounds(90)
    assert shop.gates.ungated == []
    shop.gates.refused.clear()
    await shop.create("x")
    await shop.run_rounds(65)
    assert "x" in shop.gates.ungated
    assert len(shop.gates.ungated) == 1 + 24 * 8


async def test_a_change_of_one_member_brings_its_whole_group_back() -> None:
    shop = build_shop(SINGLE)
    uids = await join_refused(shop, 20)
    await shop.run_rounds(90)
    shop.gates.refused.clear()
    shop.show(uids[7])
    await shop.run_rounds(2)
    assert sorted(shop.gates.ungated) == uids


async def test_the_gates_of_a_group_are_removed_within_the_rate_of_releases() -> None:
    shop = build_shop(rate=50)
    uids = [f"a{number:03}" for number in range(200)]
    await shop.join(member_of("a", 200), *uids)
    for second in range(1, 5):
        await shop.run_rounds(1)
        assert len(shop.gates.ungated) <= 13 + 50 * second
    await shop.run_rounds(1)
    assert len(shop.gates.ungated) == 200


async def test_gates_of_a_group_that_are_refused_are_tried_again_within_the_rate_of_releases() -> None:
    shop = build_shop(rate=50)
    uids = [f"a{number:03}" for number in range(100)]
    shop.gates.refused.update(uids[1:])
    await shop.join(member_of("a", 100), *uids)
    await shop.run_rounds(60)
    assert shop.gates.ungated == uids[:1]
    assert len(shop.gates.refusals) <= 99 + 60, "each once, then one a second: all of them were refused"
    assert await read_usage(shop) == 100
    shop.gates.refused.clear()
    before = len(shop.gates.ungated)
    for second in range(1, 4):
        await shop.run_rounds(1)
        assert len(shop.gates.ungated) - before <= 13 + 50 * second
    await shop.run_rounds(2)
    assert sorted(shop.gates.ungated) == uids


async def test_a_group_is_given_back_at_once_when_its_first_gate_is_refused() -> None:
    """Its other members are not tried: it is released whole, or not at all."""
    shop = build_shop()
    uids = [f"a{number:03}" for number in range(20)]
    shop.gates.refused.add(uids[0])
    await shop.join(member_of("a", 20), *uids)
    await shop.run_rounds(1)
    assert (shop.gates.ungated, await read_usage(shop)) == ([], 0)


async def test_a_group_whose_first_member_is_gone_is_tried_by_its_next_one() -> None:
    shop = build_shop()
    uids = [f"a{number:03}" for number in range(20)]
    await shop.join(member_of("a", 20), *uids)
    del shop.gates.pods[uids[0]]
    shop.gates.refused.add(uids[1])
    await shop.run_rounds(1)
    assert shop.gates.ungated == []
    shop.delete(uids[0])
    shop.gates.refused.clear()
    await shop.join(member_of("a", 20), "again")
    await shop.run_rounds(8)
    assert sorted(shop.gates.ungated) == [*uids[1:], "again"]
    assert await read_usage(shop) == 20


async def test_a_group_without_an_answer_is_tried_by_its_first_member_for_thirty_seconds() -> None:
    shop = build_shop()
    uids = [f"a{number:03}" for number in range(20)]
    shop.gates.trouble = 1000
    await shop.join(member_of("a", 20), *uids)
    await shop.run_rounds(25)
    assert shop.gates.unanswered <= 26
    assert await read_usage(shop) == 20
    await shop.run_rounds(8)
    assert await read_usage(shop) == 0
    shop.gates.trouble = 0
    await shop.run_rounds(10)
    assert sorted(shop.gates.ungated) == uids


async def test_refused_members_of_groups_that_have_begun_leave_the_rate_to_others() -> None:
    """Pods of their own service that are released do not change that."""
    shop = build_shop(SERVICES.replace("[shop]", "[shop, mall]", 1), rate=50)
    for group in ("a", "b", "c"):
        uids = [f"{group}{number:03}" for number in range(200)]
        shop.gates.refused.update(uids[1:])
        await shop.join(member_of(group, 200), *uids)
    await shop.run_rounds(5)
    refused = len(shop.gates.refusals)
    assert sorted(shop.gates.ungated) == ["a000", "b000", "c000"]
    for second in range(20):
        await shop.create(f"x{second}", namespace="mall")
        await shop.run_rounds(1)
    assert {f"x{second}" for second in range(20)} < set(shop.gates.ungated)
    assert len(shop.gates.refusals) - refused <= 3 * 20, "one of each group a second"
    shop.gates.refused.clear()
    await shop.run_rounds(20)
    assert len(shop.gates.ungated) == 3 * 200 + 20


async def test_a_group_that_has_begun_holds_its_service_for_thirty_seconds_without_an_answer() -> None:
    shop = build_shop(SERVICES.replace("[shop]", "[shop, mall]", 1))
    removed, remove = list[str](), shop.gates.remove

    async def remove_first(namespace: str, name: str, uid: str) -> bool:
        if namespace == "shop" and removed:
            raise GateError(f"{namespace}/{name}", "cannot release: no answer in time")
        removed.append(uid)
        return await remove(namespace, name, uid)

    shop.gates.remove = remove_first  # type: ignore[method-assign]  a webhook of one namespace that hangs
    await shop.join(member_of("a", 3), "a0", "a1", "a2")
    await shop.run_rounds(1)
    await shop.create("x", namespace="mall")
    await shop.run_rounds(25)
    assert removed == ["a0"]
    await shop.run_rounds(10)
    assert removed == ["a0", "x"]
    assert await read_usage(shop) == 4
