"""Both policies of a canary count alike: limits, pools and breakers move only as whole services and pools."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.reviewing import policy_of
from tests.core.rollout.policies import HASHES, build_canary, policies, write_divided
from tests.core.strategies import PROPERTY
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import build_service_keys, compose
from webhook.core.rollout.selection import Reach

REACHES = st.builds(Reach, st.sampled_from(list(CanaryBy)), percent=st.integers(0, 100))
STABLE, CANDIDATE = HASHES


@PROPERTY
@given(policies(), policies(), REACHES)
def test_both_policies_have_the_same_plans_for_every_service(
    stable: LoadedPolicy, candidate: LoadedPolicy, reach: Reach
) -> None:
    old, new = replace(stable, hash=STABLE), replace(candidate, hash=CANDIDATE)
    composed = compose(old, new, reach)
    base, canary = CompiledPolicy(composed.base), CompiledPolicy(composed.canary)
    for name in {*base.plans, *canary.plans}:
        assert base.plans.get(name, canary.plans.get(name)) == canary.plans.get(name, base.plans.get(name))
    assert [service.name for service in base.policy.services] == [service.name for service in old.policy.services]
    assert [service.name for service in canary.policy.services] == [service.name for service in new.policy.services]
    assert {service.name for service in composed.added} == {*canary.plans} - {*base.plans}
    keys = build_service_keys(old.policy, new.policy)
    by_tag: dict[str, set[str]] = {}
    for service in (*old.policy.services, *new.policy.services):
        by_tag.setdefault(service.tag, set()).add(keys[service.name])
    assert all(len(moved_as) == 1 for moved_as in by_tag.values()), "a pool moves as a whole"
    both = pair(old.policy, new.policy, reach)(base, canary)
    assert set(both.plans) == {*base.plans, *canary.plans}
    assert all(both.plans[name] is plan for name, plan in both.canary.plans.items()), "the same objects"
    sums: dict[tuple[str, str], set[int]] = {}
    for plan in both.plans.values():
        for (_, window, limit), found in zip(plan.limits, plan.guarantees, strict=True):
            if found is not None:
                guaranteed = found.hard + sum(hard for _, hard in found.others)
                assert guaranteed <= limit.hard, "a pool guarantees no more than it has"
                sums.setdefault((plan.tag, window.name), set()).add(guaranteed)
    assert all(len(found) == 1 for found in sums.values()), "members of a pool are judged by the same guarantees"


@PROPERTY
@given(policies(), policies(), st.integers(0, 99))
def test_limits_that_have_moved_do_not_move_back(stable: LoadedPolicy, candidate: LoadedPolicy, percent: int) -> None:
    old, new = replace(stable, hash=STABLE), replace(candidate, hash=CANDIDATE)
    quotas = {service.name: service.quota for service in new.policy.services}
    former = {service.name: service.quota for service in old.policy.services}
    moved = [
        {
            service.name
            for service in compose(old, new, Reach(CanaryBy.SERVICE, percent=share)).canary.policy.services
            if service.quota == quotas[service.name] != former.get(service.name, quotas[service.name])
        }
        for share in (percent, percent + 1, 100)
    ]
    assert moved[0] <= moved[1] <= moved[2]
    assert moved[2] == {name for name in quotas if name in former and quotas[name] != former[name]}


def test_a_service_of_the_candidate_alone_is_counted_and_owned_only_by_the_canary() -> None:
    stable = replace(policy_of("- {name: a, match: {namespaces: [a]}}\n"), hash=STABLE)
    candidate = replace(
        policy_of(
            "- {name: b, match: {namespaces: [a], podSelector: {matchLabels: {app: b}}},"
            " quota: {windows: [{window: 1m, hard: {pods: 3}}]}}\n"
            "- {name: a, match: {namespaces: [a]}}\n"
        ),
        hash=CANDIDATE,
    )
    composed = compose(stable, candidate, Reach(CanaryBy.WORKLOAD, percent=50))
    base = BasePolicy(CompiledPolicy(composed.base), CompiledPolicy(composed.canary), Reach(CanaryBy.WORKLOAD), {})
    assert base.plans["b"].windows
    for compiled, owner in ((base, "a"), (base.canary, "b")):
        found = compiled.matcher.find_owner("a", {}, {"app": "b"})
        assert found is not None
        assert found.name == owner
    assert base.choose_by_hash(CANDIDATE) is base.canary
    assert base.choose_by_hash(STABLE) is base.choose_by_hash("") is base


def test_both_policies_have_the_same_breaker_of_a_variant_and_all_breakers_live() -> None:
    both = build_canary(
        write_divided("spot", "arm", "on-demand"), write_divided("spot", "arm", "gpu", "on-demand", open_for="1m")
    )
    assert [plan.service for plan in both.list_breakers()] == ["a", "a/spot", "a/arm", "a/gpu"]
    base, canary = both.shares["a"], both.canary.shares["a"]
    assert [variant.name for variant in canary.variants] == ["spot", "arm", "gpu", "on-demand"]
    for name in ("spot", "arm"):
        mine, other = base.find(name), canary.find(name)
        assert mine is not None
        assert other is not None
        assert mine.counters is other.counters, "the same object"
    assert both.list_breakers()[-1] in [variant.counters for variant in canary.variants]


def test_a_variant_that_is_the_last_of_one_policy_has_the_breaker_of_the_other() -> None:
    both = build_canary(write_divided("spot", "on-demand"), write_divided("on-demand", "spot"))
    assert [plan.service for plan in both.list_breakers()] == ["a", "a/spot", "a/on-demand"]
    assert [variant.counters is None for variant in both.canary.shares["a"].variants] == [False, True]


def test_each_policy_divides_as_it_says() -> None:
    plain = "- {name: a, match: {namespaces: [a]}}\n"
    for stable, candidate, divides in (
        (plain, write_divided("spot", "on-demand"), (False, True)),
        (write_divided("spot", "on-demand"), plain, (True, False)),
    ):
        both = build_canary(stable, candidate)
        assert (both.plans["a"].divides, both.canary.plans["a"].divides) == divides
        assert ("a" in both.shares, "a" in both.canary.shares) == divides
        assert [plan.service for plan in both.list_breakers()] == ["a", "a/spot"]
