"""Teams: which counters the Pods of a Namespace have by its labels."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import body, pod, policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Half
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import find_ownership
from webhook.core.policy_fields import PerLabel, Quota
from webhook.core.quota.counter_resets import find_resets
from webhook.core.quota.teams import OTHERS, UNLABELLED, find_team, list_team_limits, mark_overflow
from webhook.interceptor import Interceptor, UnknownNamespaceError
from webhook.observers import Observers

BY_TEAM = "{namespaceLabel: team}"
QUOTA = Quota(per=PerLabel("team"))
LABELS = {"shop": {"team": "red"}, "bank": {"team": "red"}, "lab": {"team": "blue"}, "new": {}, "empty": {"team": ""}}


def policy(per: str = BY_TEAM, hard: int = 2) -> str:
    windows = f"windows: [{{window: 1h, hard: {{pods: {hard}}}}}]"
    return f"- {{name: web, match: {{anyNamespace: true}}, quota: {{per: {per}, {windows}}}}}"


class Server:
    def __init__(self, document: str, labels: Mapping[str, Mapping[str, str]]) -> None:
        self.clock = VirtualClock(1_800_000_000_000_000)
        self.store = MemoryStore(self.clock)
        policies = FixedPolicy(policy_of(document), self.clock)
        self.namespaces = FixedNamespaces(labels)
        self.interceptor = Interceptor(policies, self.store, self.namespaces, Observers())

    async def create(self, namespace: str, uid: str) -> Decision:
        asked = body(namespace=namespace, object=pod(uid=uid))
        return (await self.interceptor.review(Half.VALIDATE, asked)).decision


async def test_namespaces_of_a_team_share_one_limit_and_those_without_share_another() -> None:
    server = Server(policy(), LABELS)
    admitted = [
        (namespace, (await server.create(namespace, f"{namespace}-{number}")).allowed)
        for namespace in ("shop", "bank", "lab", "new", "empty")
        for number in range(2)
    ]
    assert [name for name, allowed in admitted if allowed] == ["shop", "shop", "lab", "lab", "new", "new"]


@pytest.mark.parametrize(
    ("namespace", "shown"),
    [("shop", "(team=red)"), ("new", "(no team)")],
)
async def test_a_denial_names_the_team(namespace: str, shown: str) -> None:
    server = Server(policy(hard=0), LABELS)
    denied = await server.create(namespace, "a")
    assert f"pods in 1h: hard 0, used 0, asked 1 {shown};" in denied.status.message
    assert ("own", f"counts for {shown[1:-1]}") in [(step.stage, step.found) for step in denied.steps]
    assert denied.inputs.namespace_values == {key: LABELS[namespace][key] for key in LABELS[namespace]}


async def test_a_namespace_that_is_not_known_is_looked_up_and_never_guessed() -> None:
    with pytest.raises(UnknownNamespaceError):
        await Server(policy(), {}).create("shop", "a")


async def test_relabelling_moves_new_charges_and_no_former_ones() -> None:
    server = Server(policy(), LABELS)
    assert [(await server.create("shop", uid)).allowed for uid in "abc"] == [True, True, False]
    server.namespaces.update({"shop": {"team": "green"}})
    assert [(await server.create("shop", uid)).allowed for uid in "def"] == [True, True, False]
    assert not (await server.create("bank", "g")).allowed


def test_a_watched_pod_is_of_the_same_team() -> None:
    compiled = CompiledPolicy(policy_of(policy()))
    watched = Pod.from_document(pod(uid="a"))
    for labels in LABELS.values():
        found = find_ownership(watched, compiled, labels)
        assert found is not None
        assert found.team == find_team(QUOTA, labels) != ""
        assert compiled.plans["web"].scope_of(found) == found.team


def test_without_labels_there_is_no_team() -> None:
    assert [find_team(quota, {"team": "red"}) for quota in (None, Quota())] == ["", ""]


def test_values_beyond_the_limit_share_one_counter() -> None:
    marked = mark_overflow(LABELS, {"team": 1})
    teams = {name: find_team(QUOTA, marked.get(name, labels)) for name, labels in LABELS.items()}
    assert teams == {"shop": OTHERS, "bank": OTHERS, "lab": "blue", "new": UNLABELLED, "empty": UNLABELLED}
    assert mark_overflow(LABELS, {"team": 2}) == {}


@given(
    st.dictionaries(st.text(min_size=1), st.dictionaries(st.just("team"), st.sampled_from("abcdef"))), st.integers(1, 6)
)
def test_never_more_teams_than_the_limit_and_the_two_shared_ones(labels: dict[str, dict[str, str]], most: int) -> None:
    marked = mark_overflow(labels, {"team": most})
    teams = {find_team(QUOTA, marked.get(name, own)) for name, own in labels.items()}
    assert len(teams - {OTHERS, UNLABELLED}) <= most


def test_the_least_limit_of_a_label_holds() -> None:
    seven, five = (policy(f"{{namespaceLabel: team, maxValues: {most}}}") for most in (7, 5))
    other = five.replace("web", "other").replace("anyNamespace: true", "namespaces: [other]")
    assert list_team_limits(policy_of(f"{other}\n{seven}").policy) == {"team": 5}


@pytest.mark.parametrize(
    ("before", "after", "resets"),
    [
        ("Namespace", BY_TEAM, ["namespaceLabel: its windows start empty: each value of the Namespaces' label team"]),
        (BY_TEAM, "{namespaceLabel: owner}", ["namespaceLabel: its windows start empty: each value of the"]),
        (BY_TEAM, "{namespaceLabel: team, maxValues: 5}", []),
        (BY_TEAM, "Service", ["Service: its windows start empty: the service counts for itself"]),
    ],
)
def test_another_label_starts_empty(before: str, after: str, resets: list[str]) -> None:
    found = list(find_resets(policy_of(policy(before)).policy, policy_of(policy(after)).policy))
    assert len(found) == len(resets)
    assert all(part in line for part, line in zip(resets, found, strict=True))
