from collections.abc import Mapping

import pytest

from tests.core.reviewing import NOW_US, body, pod, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import LoadedPolicy
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers

POLICY = policy_of(
    "- {name: named, match: {namespaces: [shop]}}\n"
    "- {name: chosen, match: {namespaces: ['team-*'], namespaceSelector: {matchLabels: {tier: prod}}}}\n"
)


class Namespaces:
    """What the cache holds, what the API server holds, and who was asked for."""

    def __init__(self, cached: Mapping[str, Mapping[str, str]], live: Mapping[str, Mapping[str, str]]) -> None:
        self._cached = cached
        self._live = live
        self.looked: list[str] = []

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._cached.get(namespace)

    async def lookup(self, namespace: str) -> Mapping[str, str] | None:
        self.looked.append(namespace)
        return self._live.get(namespace)


PROD, TEST = {"tier": "prod"}, {"tier": "test"}


async def judged(namespaces: Namespaces, namespace: str, policy: LoadedPolicy = POLICY, **request: object) -> Decision:
    clock = VirtualClock(NOW_US)
    interceptor = Interceptor(FixedPolicy(policy, clock), MemoryStore(clock), namespaces, Observers())
    asked = {"namespace": namespace, "object": pod(uid="u"), **request}
    return (await interceptor.review(Half.MUTATE, body(**asked))).decision


@pytest.mark.parametrize(("labels", "service"), [(PROD, "chosen"), (TEST, None), ({}, None)])
async def test_a_cached_namespace_is_matched_by_its_labels(labels: dict[str, str], service: str | None) -> None:
    namespaces = Namespaces({"team-a": labels}, {})
    assert (await judged(namespaces, "team-a")).service == service
    assert namespaces.looked == []


@pytest.mark.parametrize(("labels", "service"), [(PROD, "chosen"), (TEST, None)])
async def test_an_unknown_namespace_is_asked_for_once(labels: dict[str, str], service: str | None) -> None:
    namespaces = Namespaces({}, {"team-a": labels})
    assert (await judged(namespaces, "team-a")).service == service
    assert namespaces.looked == ["team-a"]


async def test_a_namespace_that_nobody_knows_is_never_no_match() -> None:
    with pytest.raises(UnknownNamespaceError, match="team-a"):
        await judged(Namespaces({}, {}), "team-a")


@pytest.mark.parametrize(("namespace", "verdict"), [("shop", Verdict.ADMIT), ("elsewhere", Verdict.UNMATCHED)])
async def test_where_the_name_decides_nobody_is_asked(namespace: str, verdict: Verdict) -> None:
    namespaces = Namespaces({}, {})
    assert (await judged(namespaces, namespace)).verdict is verdict
    assert namespaces.looked == []


async def test_for_a_pod_that_is_left_alone_nobody_is_asked() -> None:
    namespaces = Namespaces({}, {})
    daemon_sets = {"username": "system:serviceaccount:kube-system:daemon-set-controller"}
    assert (await judged(namespaces, "team-a", userInfo=daemon_sets)).verdict is Verdict.EXEMPT
    going = pod({SERVICE_LABEL: "chosen"}, uid="u")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await judged(namespaces, "team-a", operation="UPDATE", object=going, oldObject=going)).allowed
    assert namespaces.looked == []


OVERLAPPING = """
- {name: first, match: {namespaces: [team-a], podSelector: {matchLabels: {app: web}}}}
- {name: second, match: {namespaces: ['team-*'], namespaceSelector: {matchLabels: {tier: prod}},
   podSelector: {matchLabels: {app: db}}}}
- {name: third, match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-b}}}}
"""
ASKED_FOR = {
    ("team-a", "web"): False,  # the first service owns it, whatever the labels
    ("team-a", "db"): True,
    ("team-a", "other"): False,  # nobody's, whatever the labels
    ("team-b", "web"): False,  # the third reads nothing but the name
    ("team-b", "db"): True,
    ("elsewhere", "web"): False,
}


@pytest.mark.parametrize("asked", ASKED_FOR)
async def test_labels_are_asked_for_only_where_the_owner_depends_on_them(asked: tuple[str, str]) -> None:
    namespace, app = asked
    namespaces = Namespaces({}, {namespace: PROD})
    unseen = await judged(namespaces, namespace, policy_of(OVERLAPPING), object=pod({"app": app}, uid="u"))
    assert namespaces.looked == [namespace] * ASKED_FOR[asked]
    if not ASKED_FOR[asked]:
        for labels in (PROD, TEST, {}):
            known = Namespaces({namespace: labels}, {})
            seen = await judged(known, namespace, policy_of(OVERLAPPING), object=pod({"app": app}, uid="u"))
            assert seen.service == unseen.service


@pytest.mark.parametrize(("unmatched", "looked"), [("Admit", []), ("Warn", ["team-a"]), ("Deny", ["team-a"])])
async def test_labels_are_asked_for_where_they_say_whether_a_pod_of_nobody_is_reported(
    unmatched: str, looked: list[str]
) -> None:
    policy = policy_of(OVERLAPPING.replace("team-a", "shop"), f"unmatched: {unmatched}")
    namespaces = Namespaces({}, {"team-a": TEST})
    assert (await judged(namespaces, "team-a", policy, object=pod({"app": "web"}, uid="u"))).service is None
    assert namespaces.looked == looked
