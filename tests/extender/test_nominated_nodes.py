"""Nodes that a scheduler publishes before it binds a Pod, in its status or its claims: what they hold, and how long."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.core.reviewing import policy_of
from tests.extender.bursts import POLICY, SERVICE, SOURCES
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod_requests import NANO
from webhook.core.policy.model import LoadedPolicy
from webhook.core.scheduling.claims import SelectedClaim, VolumePod, list_claims
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import KnownNode, SchedulableNode
from webhook.core.scheduling.numa import NumaZones
from webhook.extender.extender import Extender
from webhook.extender.scheduling_records import SchedulingRecords

NODES = ("a", "b")
CLAIM = "shop/data"
OLD_FAILURE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "1"}
NEW_FAILURE = OLD_FAILURE | {"reason": "SchedulerError"}


def build_pod(  # noqa: PLR0913  what tests vary
    name: str = "p",
    *,
    nominated: str = "",
    node: str = "",
    claims: tuple[str, ...] = (),
    failure: dict[str, str] | None = None,
    service: str = "web",
    cpu: str = "4",
    memory: str = "1Mi",
    **spec: Any,
) -> dict[str, Any]:
    asked = {"cpu": cpu, "memory": memory}
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": {"podgate.io/service": service}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    container = {"name": "c", "resources": {"limits": asked, "requests": asked}}
    status: dict[str, Any] = {"phase": "Pending", "conditions": [failure] if failure else []}
    if nominated:
        status["nominatedNodeName"] = nominated
    placed = {"nodeName": node} if node else {}
    return {
        "metadata": metadata,
        "spec": {
            "schedulerName": "podgate-scheduler",
            "containers": [container],
            "volumes": volumes,
            **placed,
            **spec,
        },
        "status": status,
    }


class Replica:
    """An extender with two nodes, of one zone each, that are measured."""

    def __init__(self, loaded: LoadedPolicy = POLICY, nodes: tuple[str, ...] = NODES) -> None:
        self.now = 1_795_500_000.0
        policy = CompiledPolicy(loaded)
        self.extender = Extender(lambda: policy, SchedulingRecords(lambda: None), lambda: self.now)
        table = self.table = self.extender.table
        self.claims = table.index.nominated
        if nodes:
            self.list_nodes(nodes)
        table.configure(loaded.policy.nodes, ["prometheus"])
        table.numa.on_numa_listed({name: NumaZones(({"cpu": 8 * NANO},), is_by_pod=False) for name in NODES})
        self.list()
        self.settle()

    def list_nodes(self, names: tuple[str, ...]) -> None:
        self.table.index.on_nodes_listed(KnownNode(SchedulableNode(name, 64_000.0, 2.0**40)) for name in names)

    def settle(self, seconds: float = 0.0) -> None:
        self.now += seconds
        loads = {name: NodeLoad("prometheus", self.now, 1000.0, 0.0) for name in NODES}
        self.table.take_measurements("prometheus", loads)
        self.table.settle(self.table.list_nodes())

    def list(self, *pods: dict[str, Any]) -> None:
        index = self.table.index
        asyncio.run(index.on_list_begun())
        asyncio.run(index.on_listed([msgspec.convert(pod, VolumePod) for pod in pods]))
        asyncio.run(index.on_list_complete())

    def show(self, pod: dict[str, Any], *, gone: bool = False) -> None:
        asyncio.run(self.table.index.on_changed(msgspec.convert(pod, VolumePod), gone=gone))

    def filter(self, pod: dict[str, Any], *nodes: str) -> None:
        self.extender.filter(msgspec.json.encode({"Pod": pod, "NodeNames": nodes}))

    def select(self, node: str, claim: str = CLAIM, *, is_bound: bool = False) -> None:
        self.claims.on_claim_changed(SelectedClaim(claim, node, is_bound))

    @property
    def held(self) -> str:
        """The node on which the load of one Pod counts, and what it takes of the zone; "" for none."""
        self.settle()
        rows = self.table.rows
        loaded = [name for name in NODES if rows[name].assumed.cpu_millis == 0.85 * 4000]
        zoned = [name for name in NODES if (zones := rows[name].numa) and zones.zones[0]["cpu"] == 4 * NANO]
        assert loaded == zoned
        return "".join(loaded)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_nomination_on_a_retry_wins_over_the_condition_of_the_last_failure(replica: Replica) -> None:
    replica.show(build_pod(failure=OLD_FAILURE))
    assert replica.held == ""
    replica.show(build_pod(failure=OLD_FAILURE, nominated="a"))
    assert replica.held == "a"
    replica.show(build_pod(failure=NEW_FAILURE))
    assert replica.held == ""


def test_new_filter_call_ends_a_nomination_and_the_next_one_counts(replica: Replica) -> None:
    replica.show(build_pod(nominated="a"))
    replica.filter(build_pod(nominated="a"), "a", "b")
    assert replica.held == ""
    replica.show(build_pod(failure=OLD_FAILURE))
    replica.show(build_pod(failure=OLD_FAILURE, nominated="b"))
    assert replica.held == "b"


def test_nominated_pod_that_is_tried_again_keeps_its_node_for_longer_than_five_seconds(replica: Replica) -> None:
    """Preemption has nominated the node. It stays the same, so that nothing is published while volumes are awaited."""
    replica.show(build_pod(nominated="a"))
    replica.filter(build_pod(nominated="a"), "a")
    replica.settle(60)
    assert replica.held == "a"


@pytest.mark.parametrize("is_listed", [False, True])
def test_nomination_ends_after_615_seconds_and_a_list_restores_it(replica: Replica, *, is_listed: bool) -> None:
    if is_listed:
        replica.list(build_pod(nominated="a"))
    else:
        replica.show(build_pod(nominated="a"))
    replica.settle(614)
    assert replica.held == "a"
    replica.settle(2)
    assert replica.held == ""


# Claims, before Kubernetes 1.35.


def test_claim_holds_the_pod_on_its_selected_node_until_it_is_bound(replica: Replica) -> None:
    replica.show(build_pod(claims=("data",)))
    replica.select("a")
    replica.settle(60)
    assert replica.held == "a"
    replica.select("a", is_bound=True)  # the scheduler looks at it once a second
    assert replica.held == "a"
    replica.show(build_pod(claims=("data",), node="a"))
    assert replica.held == "a"
    assert replica.claims.list_uids() == set()


def test_claim_and_pod_may_be_shown_in_any_order_and_a_restart_finds_both(replica: Replica) -> None:
    replica.claims.on_claims_listed([SelectedClaim(CLAIM, "b", is_bound=False)])
    replica.list(build_pod(claims=("data",), failure=OLD_FAILURE))
    assert replica.held == "b"
    other = Replica()
    other.list(build_pod(claims=("data",), failure=OLD_FAILURE))
    other.claims.on_claims_listed([SelectedClaim(CLAIM, "b", is_bound=False)])
    assert other.held == "b"


def test_claim_moves_the_pod_from_the_node_that_was_scored_best(replica: Replica) -> None:
    replica.show(build_pod(claims=("data",)))
    replica.filter(build_pod(), "a")
    assert replica.held == "a"
    replica.select("b")
    assert replica.held == "b"


@pytest.mark.parametrize("end", ["provisioner", "claim", "pod", "failure", "filter", "time"])
def test_what_a_claim_holds_ends(replica: Replica, end: str) -> None:
    replica.show(build_pod(claims=("data",), failure=OLD_FAILURE))
    replica.select("a")
    replica.show(build_pod(claims=("data",), failure=OLD_FAILURE, terminationGracePeriodSeconds=5))
    assert replica.held == "a", "the condition of the last failure stays"
    match end:
        case "provisioner":
            replica.select("")  # it has failed, and lets the scheduler choose anew
        case "claim":
            replica.claims.on_claim_gone(CLAIM)
        case "pod":
            replica.show(build_pod(claims=("data",)), gone=True)
        case "failure":
            replica.show(build_pod(claims=("data",), failure=NEW_FAILURE))
        case "filter":
            replica.filter(build_pod(claims=("data",)), "a", "b")
        case _:
            replica.settle(616)
    assert replica.held == ""


def test_pod_that_is_tried_again_is_held_on_the_node_that_its_claim_still_has(replica: Replica) -> None:
    """The API server tells nobody of a write that changes nothing."""
    replica.show(build_pod(claims=("data",)))
    replica.select("a")
    replica.filter(build_pod(claims=("data",)), "a")
    replica.settle(60)
    assert replica.held == "a"


@pytest.mark.parametrize("end", ["provisioner", "pod", "failure"])
def test_what_a_pod_is_held_on_again_ends_as_well(replica: Replica, end: str) -> None:
    replica.show(build_pod(claims=("data",)))
    replica.select("a")
    replica.show(build_pod(claims=("data",), failure=OLD_FAILURE))
    assert replica.held == ""
    replica.filter(build_pod(claims=("data",)), "a")
    assert replica.held == "a"
    match end:
        case "provisioner":
            replica.select("")
        case "pod":
            replica.show(build_pod(claims=("data",), failure=OLD_FAILURE), gone=True)
        case _:
            replica.show(build_pod(claims=("data",), failure=NEW_FAILURE))
    assert replica.held == ""


def test_changes_of_a_claim_share_one_time_that_only_the_scheduler_starts_again(replica: Replica) -> None:
    """Whoever may write a claim can write its node again and again."""
    pod = build_pod(claims=("data",))
    replica.show(pod)
    held = []
    for second in range(0, 1800, 100):
        replica.select("")
        replica.select("ab"[second % 200 // 100])
        held.append(replica.held)
        replica.settle(100)
    assert held == ["a", "b", "a", "b", "a", "b", "a", *[""] * 11]
    replica.show(build_pod(claims=("data",), failure=NEW_FAILURE))
    replica.select("a")
    assert replica.held == ""
    replica.filter(pod, "a", "b")
    replica.select("b")
    assert replica.held == "b"
    replica.settle(614)
    replica.select("a")
    assert replica.held == "a"
    replica.settle(2)
    assert replica.held == ""


def test_pod_that_the_scheduler_places_after_its_time_counts_there_as_long(replica: Replica) -> None:
    replica.show(build_pod(claims=("data",)))
    replica.select("a")
    replica.settle(616)
    replica.filter(build_pod(claims=("data",)), "a")
    replica.settle(614)
    assert replica.held == "a"
    replica.settle(2)
    assert replica.held == ""


@pytest.mark.parametrize("asked", [{"cpu": "65"}, {"cpu": "100000"}, {"memory": "2Ti"}])
def test_pod_that_is_larger_than_the_node_holds_nothing(replica: Replica, asked: dict[str, str]) -> None:
    """No scheduler chooses such a node: a tenant has written it."""
    replica.show(build_pod("large", claims=("data",), **asked))
    replica.select("a")
    replica.settle()
    assert not replica.table.count_assumed_pods()
    replica.show(build_pod("fitting", claims=("other",), cpu="64"))
    replica.select("a", "shop/other")
    assert replica.table.count_assumed_pods() == {"a": 1}


@pytest.mark.parametrize("node", ["", "a"])
def test_no_pod_counts_more_than_its_node_has(replica: Replica, node: str) -> None:
    pod = build_pod(node=node, nominated="" if node else "a", cpu="100000")
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    replica.show(pod)
    replica.settle()
    assert replica.table.rows["a"].assumed.cpu_millis == 64_000.0


def test_claim_tells_of_pods_of_schedulers_that_ask_the_extender_only(replica: Replica) -> None:
    for name in ("nobody", "default-scheduler", "another"):
        replica.show(build_pod(name, claims=(name,), schedulerName=name))
        replica.select("a", f"shop/{name}")
    assert not replica.claims.needs_claims
    assert replica.held == ""
    replica.filter(build_pod("first", schedulerName="another"), "a", "b")
    assert replica.claims.needs_claims
    replica.select("b", "shop/another")
    assert replica.held == "b"


def test_default_scheduler_asks_the_extender_if_a_service_names_no_other() -> None:
    replica = Replica(policy_of(SERVICE.replace("placement: {schedulerName: podgate-scheduler}", ""), SOURCES))
    replica.show(build_pod(claims=("data",), schedulerName="default-scheduler"))
    replica.select("a")
    assert replica.held == "a"


def test_pods_that_are_listed_before_the_nodes_count_on_them() -> None:
    replica = Replica(nodes=())
    bursting = build_pod("bursting", node="b", cpu="100000")
    bursting["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    replica.list(build_pod("p", nominated="a"), build_pod("large", claims=("data",), cpu="65"), bursting)
    replica.select("a")
    replica.list_nodes(NODES)
    replica.settle()
    assert replica.table.count_assumed_pods() == {"a": 1, "b": 1}
    assert [replica.table.rows[name].assumed.cpu_millis for name in NODES] == [0.85 * 4000, 64_000.0]


@pytest.mark.parametrize(
    "pod",
    [
        build_pod(claims=("other",)),
        build_pod(claims=("data",), service="none"),
        build_pod(claims=("data",), schedulingGates=[{"name": "x"}]),
        build_pod(claims=("data",)) | {"metadata": {"name": "p", "namespace": "elsewhere", "uid": "p"}},
    ],
)
def test_claims_of_other_pods_hold_nothing(replica: Replica, pod: dict[str, Any]) -> None:
    replica.show(pod)
    replica.select("a")
    assert replica.held == ""


def test_claim_that_has_its_volume_or_is_named_by_several_waiting_pods_tells_nothing(replica: Replica) -> None:
    replica.show(build_pod(claims=("data",)))
    replica.select("a", is_bound=True)
    assert replica.held == "", "as of a StatefulSet's next Pod"
    replica.show(build_pod("q", claims=("data",)))
    replica.select("a")
    assert replica.held == ""
    replica.filter(build_pod(claims=("data",)), "a")
    replica.settle(60)
    assert replica.held == "a", "the one that was placed"


def test_nominated_node_goes_before_that_of_a_claim(replica: Replica) -> None:
    replica.show(build_pod(claims=("data",), nominated="b"))
    replica.select("a")
    assert replica.held == "b"
    replica.claims.on_claim_gone(CLAIM)
    assert replica.held == "b"
    replica.show(build_pod(claims=("data",), failure=NEW_FAILURE))
    assert replica.held == ""


def test_claims_are_needed_only_for_waiting_pods_of_services_with_rules(replica: Replica) -> None:
    gated = build_pod(claims=("data",), schedulingGates=[{"name": "x"}])
    for pod in (build_pod("n", nominated="a"), build_pod("s", claims=("data",), service="none"), gated):
        replica.show(pod)
        assert not replica.claims.needs_claims
    replica.show(build_pod(claims=("data",)))
    assert replica.claims.needs_claims
    replica.show(build_pod(claims=("data",), node="a"))
    assert not replica.claims.needs_claims


def test_claim_of_a_generic_ephemeral_volume_has_the_name_of_the_pod_and_the_volume() -> None:
    pod = build_pod(claims=("data", "data"))
    pod["spec"]["volumes"] += [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "x"}]
    assert list_claims(msgspec.convert(pod, VolumePod)) == ("shop/data", "shop/p-scratch")


@pytest.mark.parametrize("service", ["web", "other"])
def test_of_a_waiting_pod_only_what_its_load_is_found_by_is_kept(service: str) -> None:
    replica, long = Replica(), "n" * 100_000
    written = build_pod(claims=("data", long), service=service)
    written["metadata"] |= {
        "managedFields": [{"manager": long}],
        "annotations": {"a": long},
        "ownerReferences": [{"apiVersion": "x/v1", "kind": long, "name": long, "uid": long, "controller": True}] * 9,
    }
    written["metadata"]["labels"]["other"] = long
    written["spec"] |= {"nodeSelector": {"a": long}, "tolerations": [{"key": long}]}
    pod = msgspec.json.decode(msgspec.json.encode(written), type=VolumePod)
    asyncio.run(replica.table.index.on_changed(pod, gone=False))
    [waiting] = replica.claims._pods.values()
    assert waiting.claims == (CLAIM,)
    assert len(msgspec.json.encode(waiting.pod)) < 1_000
    assert waiting.pod.spec.containers[0].resources == pod.spec.containers[0].resources
