"""Watch of claims: metadata only, in pages of which only awaited claims are kept, and a missing right that is named."""

from typing import Any

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import CLAIMS, FakeApiServer, refuse, wait_until
from webhook.adapters.kubernetes import ApiTiming, WatchedClaims
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.claims import BIND_COMPLETED, SELECTED_NODE
from webhook.extender.nominated_nodes import NominatedNodes

QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, healthy_seconds=3600)
PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


def put(fake: FakeApiServer, name: str, **annotations: str) -> None:
    written = {{"node": SELECTED_NODE, "completed": BIND_COMPLETED}[key]: value for key, value in annotations.items()}
    fake.put(CLAIMS, name, metadata={"namespace": "shop", "annotations": written or None})


def watch(client: Any, loops: Loops, reported: Reported) -> dict[str, str]:
    """Return the nodes of the awaited claims, kept current."""

    def ignore(*_: object) -> None:
        """No Pod is known."""

    def decide(_: Pod) -> bool:
        return True

    nominated = NominatedNodes(ignore, ignore, decide, lambda: 0.0)
    loops.start(WatchedClaims(client, nominated, reports=reported.reports, timing=QUICK).run())
    return nominated.nodes_by_claim


async def test_claims_are_read_in_pages_of_metadata_and_only_awaited_ones_are_kept(
    fake: FakeApiServer, client: Any, loops: Loops
) -> None:
    for number in range(1100):
        put(fake, f"bound-{number}", node="a", completed="yes")
    put(fake, "last", node="b")
    put(fake, "new")
    awaited = watch(client, loops, Reported())
    await wait_until(lambda: awaited == {"shop/last": "b"})
    await wait_until(lambda: len(fake.watching) == 1)
    assert [(seen.verb, seen.query.get("limit")) for seen in fake.seen] == [*[("list", "500")] * 3, ("watch", None)]
    assert {seen.headers["Accept"] for seen in fake.seen[:3]} == {PARTIAL.format("List")}
    assert fake.seen[3].headers["Accept"] == PARTIAL.format("")
    put(fake, "new", node="a")
    put(fake, "last", node="b", completed="yes")
    await wait_until(lambda: awaited == {"shop/new": "a"})
    put(fake, "new")
    await wait_until(lambda: awaited == {})
    put(fake, "new", node="a")
    await wait_until(lambda: awaited == {"shop/new": "a"})
    fake.remove(CLAIMS, "new")
    await wait_until(lambda: awaited == {})


async def test_missing_right_is_named_and_the_claims_are_read_once_it_is_granted(
    fake: FakeApiServer, client: Any, loops: Loops
) -> None:
    put(fake, "new", node="a")
    reported = Reported()
    fake.fail_next("list", refuse(403, "forbidden"), refuse(403, "forbidden"))
    awaited = watch(client, loops, reported)
    await wait_until(lambda: awaited == {"shop/new": "a"})
    [trouble] = reported.troubles
    assert trouble == (
        "cannot list persistentvolumeclaims: HTTP 403: forbidden: grant the right to list and watch"
        " persistentvolumeclaims in all namespaces (ClusterRole podgate-extender), unless the API server has only just"
        " started"
    )
    assert reported.overs == reported.troubles
