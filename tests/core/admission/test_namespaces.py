from collections.abc import Mapping

import pytest

from tests.core.reviewing import NOW_US, body, pod, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.policy.model import LoadedPolicy
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers

POLICY = policy_of(
    "- {name: named, match: {namespaces: [shop]}}\n"
    "- {name: chosen, match: {namespaces: ['team-*'], namespaceSelector: {matchLabels: {tier: prod}}}}\n"
)


class Namespaces:
    """Namespaces of a cache and of the API server, with the names that were looked up."""

    def __init__(self, cached: Mapping[str, Mapping[str, str]], live: Mapping[str, Mapping[str, str]]) -> None:
        self._cached = cached
        self._live = live
        self.lookups: list[str] = []

    def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._cached.get(namespace)

    async def look_up_labels(self, namespace: str) -> Mapping[str, str] | None:
        self.lookups.append(namespace)
        return self._live.get(namespace)


PROD, TEST = {"tier": "prod"}, {"tier": "test"}


async def decide(namespaces: Namespaces, namespace: str, policy: LoadedPolicy = POLICY, **request: object) -> Decision:
    clock = VirtualClock(NOW_US)
    interceptor = Interceptor(FixedPolicy(policy, clock), MemoryStore(clock), namespaces, Observers())
    fields = {"namespace": namespace, "object": pod(uid="u"), **request}
    return (await interceptor.review(Half.MUTATE, body(**fields))).decision


@pytest.mark.parametrize(("labels", "service"), [(PROD, "chosen"), (TEST, None), ({}, None)])
async def test_a_cached_namespace_is_matched_by_its_labels(labels: dict[str, str], service: str | None) -> None:
    namespaces = Namespaces({"team-a": labels}, {})
    assert (await decide(namespaces, "team-a")).service == service
    assert namespaces.lookups == []


@pytest.mark.parametrize(("labels", "service"), [(PROD, "chosen"), (TEST, None)])
async def test_uncached_namespace_is_looked_up_once(labels: dict[str, str], service: str | None) -> None:
    namespaces = Namespaces({}, {"team-a": labels})
    assert (await decide(namespaces, "team-a")).service == service
    assert namespaces.lookups == ["team-a"]


async def test_review_in_a_nonexistent_namespace_raises_an_error() -> None:
    with pytest.raises(UnknownNamespaceError, match="team-a"):
        await decide(Namespaces({}, {}), "team-a")


@pytest.mark.parametrize(("namespace", "verdict"), [("shop", Verdict.ADMIT), ("elsewhere", Verdict.UNMATCHED)])
async def test_namespace_is_not_looked_up_if_its_name_decides(namespace: str, verdict: Verdict) -> None:
    namespaces = Namespaces({}, {})
    assert (await decide(namespaces, namespace)).verdict is verdict
    assert namespaces.lookups == []


async def test_namespace_is_not_looked_up_for_exempt_pods() -> None:
    namespaces = Namespaces({}, {})
    daemon_sets = {"username": "system:serviceaccount:kube-system:daemon-set-controller"}
    assert (await decide(namespaces, "team-a", userInfo=daemon_sets)).verdict is Verdict.EXEMPT
    assert namespaces.lookups == []


OVERLAPPING = """
- {name: first, match: {namespaces: [team-a], podSelector: {matchLabels: {app: web}}}}
- {name: second, match: {namespaces: ['team-*'], namespaceSelector: {matchLabels: {tier: prod}},
   podSelector: {matchLabels: {app: db}}}}
- {name: third, match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-b}}}}
"""
LOOKED_UP = {
    ("team-a", "web"): False,  # the first service owns the Pod, whatever the labels of the namespace
    ("team-a", "db"): True,
    ("team-a", "other"): False,  # no service owns the Pod, whatever the labels
    ("team-b", "web"): False,  # the third matches by name only
    ("team-b", "db"): True,
    ("elsewhere", "web"): False,
}


@pytest.mark.parametrize("case", LOOKED_UP)
async def test_namespace_is_looked_up_only_if_the_owner_depends_on_its_labels(case: tuple[str, str]) -> None:
    namespace, app = case
    namespaces = Namespaces({}, {namespace: PROD})
    expected = await decide(namespaces, namespace, policy_of(OVERLAPPING), object=pod({"app": app}, uid="u"))
    assert namespaces.lookups == [namespace] * LOOKED_UP[case]
    if not LOOKED_UP[case]:
        for labels in (PROD, TEST, {}):
            with_labels = Namespaces({namespace: labels}, {})
            decision = await decide(with_labels, namespace, policy_of(OVERLAPPING), object=pod({"app": app}, uid="u"))
            assert decision.service == expected.service


@pytest.mark.parametrize(("unmatched", "lookups"), [("Admit", []), ("Warn", ["team-a"]), ("Deny", ["team-a"])])
async def test_unmatched_warn_and_deny_look_up_the_namespace_of_an_unowned_pod(
    unmatched: str, lookups: list[str]
) -> None:
    policy = policy_of(OVERLAPPING.replace("team-a", "shop"), f"unmatched: {unmatched}")
    namespaces = Namespaces({}, {"team-a": TEST})
    assert (await decide(namespaces, "team-a", policy, object=pod({"app": "web"}, uid="u"))).service is None
    assert namespaces.lookups == lookups
