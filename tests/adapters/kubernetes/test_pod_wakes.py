"""Requests to wake Pods in their ConfigMap, as the leading controller reads them.

What a wake does to a Pod: tests/scheduling/test_waiting_pods.py, on a real API server.
"""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops, Reported
from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, drop, refuse, wait_until
from webhook.adapters.kubernetes import ApiTiming, RequestedWakes, WakeConfigMap
from webhook.core.scheduling.unschedulable_pods import PodReference
from webhook.errors import SchedulerWakeError

NAME = "podgate-wake"
QUICK = ApiTiming(first_pause_seconds=0.001, pause_seconds_max=0.01, cool_down_seconds=0)


class Followed(Reported):
    """A `ports.PodWakeHandler` behind a fake API server."""

    def __init__(self, fake: FakeApiServer, client: Any) -> None:
        super().__init__()
        self.fake = fake
        self.asked: list[list[str]] = []
        self.source = RequestedWakes(client, reports=self.reports, timing=QUICK)

    async def on_wake_requested(self, pods: Sequence[PodReference]) -> None:
        self.asked.append([f"{pod.namespace}/{pod.name}" for pod in pods])

    def ask(self, at: str, *pods: dict[str, str]) -> None:
        self.put(json.dumps({"at": at, "pods": pods}))

    def put(self, text: str) -> None:
        self.fake.put(CONFIGMAPS, NAME, data={"pods": text})


def refer(name: str, namespace: str = "shop") -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": f"uid-{name}"}


@pytest.fixture
async def followed(fake: FakeApiServer, client: Any, loops: Loops) -> Followed:
    made = Followed(fake, client)
    loops.start(made.source.run(made))
    await wait_until(lambda: len(fake.watching) == 1)
    return made


async def test_each_request_is_passed_on_once(followed: Followed) -> None:
    followed.ask("1", refer("a"), refer("b"))
    await wait_until(lambda: len(followed.asked) == 1)
    followed.fake.put(CONFIGMAPS, NAME, **{**(followed.fake.find_stored(CONFIGMAPS, NAME) or {}), "labels": {"a": "b"}})
    followed.ask("2", refer("a"))
    await wait_until(lambda: len(followed.asked) == 2)
    assert followed.asked == [["shop/a", "shop/b"], ["shop/a"]]
    assert followed.fake.find_last("watch").query["fieldSelector"] == f"metadata.name={NAME}"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"at": "1", "pods": [{"name": 1}]}', '{"at": "1", "pods": []}'])
async def test_request_that_is_not_understood_wakes_nobody(followed: Followed, text: str) -> None:
    followed.put(text)
    followed.ask("2", refer("last"))
    await wait_until(lambda: len(followed.asked) == 1)
    assert followed.asked == [["shop/last"]]


async def test_no_path_is_made_of_an_invalid_name_and_no_request_is_longer_than_twenty_pods(followed: Followed) -> None:
    bad = [refer("../x"), refer("a", "b/c"), refer("", "shop"), refer("a?b"), refer("A")]
    followed.ask("1", *bad, *(refer(f"p-{number}") for number in range(30)))
    await wait_until(lambda: len(followed.asked) == 1)
    assert followed.asked == [[f"shop/p-{number}" for number in range(15)]]


async def test_missing_right_of_the_extender_is_named(fake: FakeApiServer, client: Any) -> None:
    fake.fail_next("patch", refuse(403, "forbidden"))
    with pytest.raises(SchedulerWakeError, match="grant the right to patch configmap podgate-wake in podgate-system"):
        await WakeConfigMap(client).request([PodReference("shop", "a", "u")])


async def test_missing_right_of_the_controller_is_named_and_a_lost_connection_too(
    fake: FakeApiServer, client: Any
) -> None:
    fake.fail_next("patch", refuse(403, 'pods "a" is forbidden'), drop, refuse(404, "not found"))
    wakes, pod = RequestedWakes(client, reports=Reported().reports), PodReference("shop", "a", "u")
    with pytest.raises(SchedulerWakeError, match="grant the right to patch pods in all namespaces"):
        await wakes.wake(pod, 0)
    with pytest.raises(SchedulerWakeError, match="cannot annotate a Pod"):
        await wakes.wake(pod, 0)
    assert not await wakes.wake(pod, 0)
