"""One object that cannot be read among good ones: it is named, loses its own data alone, and the watch goes on."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import (
    CLAIMS,
    CONFIGMAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    STATUSES,
    TOPOLOGIES,
    FakeApiServer,
    wait_until,
)
from tests.harness.nesting import nest
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.kubernetes import (
    ApiTiming,
    ConfigMapOverrides,
    ConfigMapPolicy,
    HeldControllers,
    PodPorts,
    ServerLeases,
    ServerLeaseTiming,
    ServiceStatuses,
    WatchedClaims,
    WatchedNamespaces,
    WatchedNodes,
    WatchedNumaTopologies,
    WatchedPods,
)
from webhook.adapters.kubernetes.api.objects import Listed, Namespace
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import GarbledError
from webhook.adapters.kubernetes.api.unread_objects import decode_list
from webhook.adapters.kubernetes.namespaces import _NAMESPACES
from webhook.core.controller.held_controller import ControllerReference
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.scheduling import Estimate
from webhook.core.scheduling.claims import SELECTED_NODE, SelectedClaim
from webhook.extender.load_table import LoadTable

QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, healthy_seconds=3600)
SYSTEM = f"{NAMESPACES}/podgate-system"


def node(cpu: object) -> dict[str, Any]:
    return {"status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}}


def topology(available: object) -> dict[str, Any]:
    resources = [{"name": "cpu", "available": "4"}, {"name": "memory", "available": available}]
    return {
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": [{"name": "node-0", "type": "Node", "resources": resources}],
    }


def pod(cpu: object) -> dict[str, Any]:
    return {"spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


def put_pod(fake: FakeApiServer, name: str, fields: Mapping[str, Any]) -> None:
    fake.put_pod("shop", name, f"uid-{name}", **fields)


@dataclass
class Watched:
    """A watch with what it knows, by the name of an object."""

    path: str
    good: Callable[[int], dict[str, Any]]
    """Fields of an object with a whole number in it."""
    bad: dict[str, Any]
    reason: str
    """Field and value in the reason that is reported."""
    known: Callable[[], dict[str, int]]
    name: Callable[[str], str] = lambda name: name

    def put(self, fake: FakeApiServer, name: str, fields: Mapping[str, Any]) -> None:
        if self.path == PODS:
            put_pod(fake, name, fields)
        else:
            fake.put(self.path, name, **fields)

    def remove(self, fake: FakeApiServer, name: str) -> None:
        fake.remove(self.path, f"shop/{name}" if self.path == PODS else name)


class PodRecorder:
    """A `ports.PodEventHandler` that knows the cpu of each Pod."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}
        self._listed: set[str] = set()

    async def on_list_begun(self) -> None:
        self._listed.clear()

    async def on_listed(self, pods: Sequence[Pod]) -> None:
        for found in pods:
            self._listed.add(found.metadata.uid)
            await self.on_changed(found, gone=False)

    async def on_list_complete(self) -> None:
        self.cpus = {uid: cpu for uid, cpu in self.cpus.items() if uid in self._listed}

    async def on_changed(self, pod: Pod, *, gone: bool) -> None:
        self.cpus.pop(pod.metadata.uid, None)
        if not gone:
            [container] = pod.spec.containers or ()
            assert container.resources is not None
            self.cpus[pod.metadata.uid] = int(str((container.resources.requests or {})["cpu"]))

    async def on_unread(self, uid: str, *, gone: bool) -> None:
        self._listed.add(uid)
        if gone:
            self.cpus.pop(uid, None)

    async def on_passed(self, pod: Pod) -> None:
        raise AssertionError(pod)

    def known(self) -> dict[str, int]:
        return {uid.removeprefix("uid-"): cpu for uid, cpu in self.cpus.items()}


class IdleLoops(Loops):
    """Runs nothing."""

    def start(self, loop: Coroutine[Any, Any, None]) -> None:
        loop.close()


Start = Callable[[Any, Loops, Reported], Watched]


def watch_nodes(client: Any, loops: Loops, reported: Reported) -> Watched:
    index = LoadTable(lambda _: Estimate(), lambda: 0.0, lambda *_: None).index
    loops.start(WatchedNodes(client, index, reports=reported.reports, timing=QUICK).run())

    def known() -> dict[str, int]:
        found = {name: index.find_node(name) for name in index.list_names()}
        return {name: round(node.cpu_millis) for name, node in found.items() if node is not None}

    return Watched(NODES, lambda number: node(f"{number}m"), node("many"), "status: cpu: 'many': not a Kub", known)


def watch_topologies(client: Any, loops: Loops, reported: Reported) -> Watched:
    numa = LoadTable(lambda _: Estimate(), lambda: 0.0, lambda *_: None).numa
    loops.start(WatchedNumaTopologies(client, numa, reports=reported.reports, timing=QUICK).run())

    def known() -> dict[str, int]:
        found = {name: numa.find_zones(name) for name in ("a", "b", "c")}
        return {name: zones.zones[0]["memory"] // 10**9 for name, zones in found.items() if zones is not None}

    reason = "zones[0].resources[1]: available: '-1Gi': a quantity must not be negative"
    return Watched(TOPOLOGIES, lambda number: topology(str(number)), topology("-1Gi"), reason, known)


def watch_topologies_of_another_type(client: Any, loops: Loops, reported: Reported) -> Watched:
    watched = watch_topologies(client, loops, reported)
    watched.bad, watched.reason = topology(None), "zones[0].resources[1].available: Expected `int | str`"
    return watched


def watch_namespaces(client: Any, loops: Loops, reported: Reported) -> Watched:
    namespaces = WatchedNamespaces(client, reports=reported.reports, timing=QUICK)
    loops.start(namespaces.run())

    def known() -> dict[str, int]:
        found = {name: namespaces.find_labels(name) for name in ("a", "b", "c")}
        return {name: int(labels["number"]) for name, labels in found.items() if labels is not None}

    reason = "metadata.labels[...]: 5: Expected `str`, got `int`"
    return Watched(
        NAMESPACES, lambda number: {"labels": {"number": str(number)}}, {"labels": {"number": 5}}, reason, known
    )


def watch_pods(client: Any, loops: Loops, reported: Reported) -> Watched:
    recorder = PodRecorder()
    pods = WatchedPods(client, VirtualClock(1), reports=reported.reports, timing=QUICK)
    loops.start(pods.run(recorder))
    bad = pod("1") | {"spec": {"nodeName": 5}}
    return Watched(
        PODS, lambda number: pod(str(number)), bad, "spec.nodeName: 5: Exp", recorder.known, lambda name: f"shop/{name}"
    )


def watch_pods_on_nodes(client: Any, loops: Loops, reported: Reported) -> Watched:
    recorder = PodRecorder()
    pods = WatchedPods(client, VirtualClock(1), reports=reported.reports, timing=QUICK, with_system=True)
    loops.start(pods.run(recorder))
    return Watched(
        PODS, lambda number: pod(str(number)), pod("-1"), "cpu: '-1': a qu", recorder.known, lambda name: f"shop/{name}"
    )


class ClaimRecorder:
    """A `ports.ClaimEventHandler` that knows the number in the name of each selected node."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def on_claims_listed(self, claims: Iterable[SelectedClaim], unread: AbstractSet[str] = frozenset()) -> None:
        self.numbers = {key: number for key, number in self.numbers.items() if key in unread}
        for claim in claims:
            self.on_claim_changed(claim)

    def on_claim_changed(self, claim: SelectedClaim) -> None:
        self.numbers[claim.key] = int(claim.node)

    def on_claim_gone(self, key: str) -> None:
        self.numbers.pop(key, None)

    def known(self) -> dict[str, int]:
        return {key.removeprefix("shop/"): number for key, number in self.numbers.items()}


def watch_claims(client: Any, loops: Loops, reported: Reported) -> Watched:
    recorder = ClaimRecorder()
    loops.start(WatchedClaims(client, recorder, reports=reported.reports, timing=QUICK).run())

    def claim(node: object) -> dict[str, Any]:
        return {"metadata": {"namespace": "shop", "annotations": {SELECTED_NODE: node}}}

    reason = "metadata.annotations[...]: 5: Expected `str`, got `int`"
    return Watched(
        CLAIMS, lambda number: claim(str(number)), claim(5), reason, recorder.known, lambda name: f"shop/{name}"
    )


@pytest.mark.parametrize(
    "start",
    [
        *(watch_nodes, watch_topologies, watch_topologies_of_another_type, watch_namespaces, watch_claims),
        *(watch_pods, watch_pods_on_nodes),
    ],
)
async def test_bad_object_loses_its_own_data_alone_and_is_named(
    fake: FakeApiServer, client: Any, loops: Loops, start: Start
) -> None:
    reported = Reported()
    watched = start(client, loops, reported)
    await wait_until(lambda: len(fake.watching) == 1)

    async def expect(**known: int) -> None:
        await wait_until(lambda: watched.known() == known)

    async def expect_unread(*names: str) -> None:
        await wait_until(lambda: set(reported.unread) == {watched.name(name) for name in names})
        assert all(watched.reason in reason for reason in reported.unread.values()), reported.unread

    for number, name in enumerate("abc", 1):
        watched.put(fake, name, watched.good(number))
    await expect(a=1, b=2, c=3)

    watched.put(fake, "b", watched.bad)
    watched.put(fake, "c", watched.good(4))
    await expect(a=1, b=2, c=4)  # by the watch: what was known of b stays
    await expect_unread("b")
    assert fake.verbs() == ["list", "watch"], "the watch goes on"

    fake.revision += 1000  # writes of other kinds of objects
    fake.compact()
    fake.break_watches()
    await wait_until(lambda: fake.verbs().count("list") == 2 and len(fake.watching) == 1)
    await expect(a=1, b=2, c=4)  # by a list
    await expect_unread("b")

    watched.put(fake, "a", watched.bad)
    await expect_unread("a", "b")
    watched.remove(fake, "a")
    await expect(b=2, c=4)
    await expect_unread("b")
    watched.put(fake, "b", watched.good(5))
    await expect(b=5, c=4)
    await expect_unread()
    assert (reported.troubles, fake.verbs().count("list")) == ([], 2)


@pytest.mark.parametrize(
    "start", [watch_nodes, watch_topologies, watch_namespaces, watch_claims, watch_pods, watch_pods_on_nodes]
)
async def test_bad_object_of_the_first_list_is_named(
    fake: FakeApiServer, client: Any, loops: Loops, start: Start
) -> None:
    reported = Reported()
    watched = start(client, IdleLoops(), reported)  # it only says what to put
    for name, fields in (("a", watched.good(1)), ("b", watched.bad), ("c", watched.good(3))):
        watched.put(fake, name, fields)
    watched = start(client, loops, reported)
    await wait_until(lambda: watched.known() == {"a": 1, "c": 3})
    await wait_until(lambda: set(reported.unread) == {watched.name("b")})
    await wait_until(lambda: len(fake.watching) == 1)
    assert reported.troubles == []


class Receiver:
    """A `ports.DocumentReceiver`."""

    def __init__(self) -> None:
        self.documents: list[bytes] = []
        self.errors: list[str] = []

    async def on_document(self, document: bytes, place: str) -> bool:
        del place
        self.documents.append(document)
        self.errors = []
        return True

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        self.errors = list(errors)


@pytest.mark.parametrize("is_policy", [True, False])
async def test_bad_configmap_is_an_error_and_the_document_in_force_stays(
    fake: FakeApiServer, client: Any, loops: Loops, *, is_policy: bool
) -> None:
    reported, receiver = Reported(), Receiver()
    made: Any = ConfigMapPolicy if is_policy else ConfigMapOverrides
    name, key = ("podgate-policy", "policy.yaml") if is_policy else ("podgate-overrides", "overrides.yaml")
    source = made(client, receiver, reports=reported.reports, timing=QUICK)
    fake.put(CONFIGMAPS, name, data={key: 5})
    loops.start(source.run())
    await wait_until(lambda: bool(receiver.errors))
    [error] = receiver.errors
    assert error == f"configmap podgate-system/{name}: data[...]: 5: Expected `str`, got `int`"
    fake.put(CONFIGMAPS, name, data={key: "first"})
    await wait_until(lambda: receiver.documents[-1:] == [b"first"] and not receiver.errors)
    fake.put(CONFIGMAPS, name, data={key: 5})
    await wait_until(lambda: bool(receiver.errors))
    fake.put(CONFIGMAPS, name, data={key: "second"})
    await wait_until(lambda: receiver.documents[-1:] == [b"second"] and not receiver.errors)
    assert reported.troubles == []


async def test_bad_event_is_skipped(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    found: list[str] = []

    class Handler:
        async def on_creation_failed(self, controller: ControllerReference, *, at_us: int, is_held: bool) -> None:
            del at_us, is_held
            found.append(controller.name)

    def event(of: object) -> dict[str, Any]:
        about = {"kind": "ReplicaSet", "namespace": "shop", "name": of, "uid": "u"}
        message = 'Error creating: admission webhook "validate.podgate.io" denied the request: BreakerOpen: service web'
        return {"involvedObject": about, "reason": "FailedCreate", "message": message}

    reported = Reported()
    fake.put(EVENTS, "one", **event("first"))
    fake.put(EVENTS, "two", **event(5))
    loops.start(HeldControllers(client, reports=reported.reports, timing=QUICK).run(Handler()))
    await wait_until(lambda: set(reported.unread) == {"two"})
    fake.put(EVENTS, "three", **event("third"))
    await wait_until(lambda: found == ["first", "third"])
    assert reported.troubles == []


async def test_server_counts_by_its_lease_whatever_else_is_in_it(
    fake: FakeApiServer, client: Any, loops: Loops
) -> None:
    labels = {"app.kubernetes.io/name": "podgate", "podgate.io/part": "server"}
    fake.put(LEASES, "podgate-server-a", labels=labels, spec={"holderIdentity": "a"})
    fake.put(LEASES, "podgate-server-b", labels=labels, spec={"holderIdentity": 5})
    reported, counts = Reported(), list[tuple[int, int]]()
    timing = ServerLeaseTiming(duration_seconds=3600, renew_seconds=0.01, request_seconds=5)
    leases = ServerLeases(client, "c", is_unique=True, reports=reported.reports, timing=timing)
    leases.on_count = lambda *count: counts.append(count)
    loops.start(leases.run())
    await wait_until(lambda: counts[-1:] == [(3, 2)])
    assert list(reported.unread) == ["podgate-system/podgate-server-b"]
    assert reported.troubles == []


async def test_lists_of_commands_and_loops_leave_out_what_they_cannot_read(fake: FakeApiServer, client: Any) -> None:
    managed = {"app.kubernetes.io/managed-by": "podgate"}
    fake.put(STATUSES, "web", labels=managed, status={"admitted": 1})
    fake.put(STATUSES, "bad", labels=managed, status="none")
    assert await ServiceStatuses(client).read() == {"web": {"admitted": 1}}
    app = {"app.kubernetes.io/name": "podgate"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    fake.put_pod("podgate-system", "good", "u1", metadata={"labels": app}, status=ready)
    fake.put_pod("podgate-system", "bad", "u2", metadata={"labels": app}, status=5)
    assert list(await PodPorts(client, "podgate", 1).list_ready()) == ["good"]


async def test_object_that_is_looked_up_must_be_readable(fake: FakeApiServer, client: Any) -> None:
    fake.put(NAMESPACES, "a", labels={"number": 5})
    with pytest.raises(GarbledError, match=r"a is not understood: metadata.labels\[...\]: 5: Expected"):
        await list_objects(client, _NAMESPACES, 5)
    put_pod(fake, "bad", {"spec": 5})
    pods = WatchedPods(client, VirtualClock(1), reports=Reported().reports, timing=QUICK)
    assert await pods.find("shop", "bad") is None, "no answer, not an absent Pod"


async def test_object_without_a_name_cannot_be_left_out(fake: FakeApiServer, client: Any, loops: Loops) -> None:
    reported = Reported()
    fake.put(NODES, "a", **node("1"))
    fake.list_stored(NODES)[0]["metadata"]["name"] = 5
    watch_nodes(client, loops, reported)
    await wait_until(lambda: bool(reported.troubles))
    assert "not understood, and without a name" in reported.troubles[0]


@pytest.mark.parametrize("is_bad_first", [True, False])
@pytest.mark.parametrize("is_both", [True, False])
def test_an_object_that_is_nested_deeply_is_read_beside_one_that_cannot_be(
    *, is_bad_first: bool, is_both: bool
) -> None:
    """Deep is what nobody reads, here in one that is good and maybe in the one that is not."""
    deep = f', "managedFields": {nest(9_000)}'
    good = f'{{"metadata": {{"name": "good", "labels": {{"a": "]}}"}}{deep}}}}}'
    bad = f'{{"metadata": {{"name": "bad", "labels": 1{deep if is_both else ""}}}}}'
    items = [bad, good] if is_bad_first else [good, bad]
    body = f'{{"items": [{", ".join(items)}], "metadata": {{"resourceVersion": "7"}}}}'
    found, unread = decode_list(body.encode(), Listed[Namespace], Namespace)
    assert [item.metadata.labels for item in found.items or ()] == [{"a": "]}"}]
    assert found.metadata.resource_version == "7"
    assert [(item.name, "labels" in item.reason) for item in unread] == [("bad", True)]


@pytest.mark.parametrize("body", [nest(9_000, "[", ""), nest(9_000), nest(9_000, "", "]")])
def test_nesting_that_is_no_list_of_objects_is_not_understood(body: str) -> None:
    with pytest.raises(GarbledError):
        decode_list(body.encode(), Listed[Namespace], Namespace)
