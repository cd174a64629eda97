"""What a real API server accepts of Events, with the rights of the manifests."""

import asyncio

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.harness.fake_apiserver import wait_until
from webhook.adapters.kubernetes import EventSender, connect
from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, clip_note
from webhook.ports import WatchReports

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: counted
  match: {namespaces: ["events-*"]}
  quota: {windows: [{window: 30m, hard: {pods: 2}}]}
"""


async def test_largest_event_is_accepted_and_a_terminating_namespace_accepts_none(
    api_alone: ControlPlane, identities: Identities
) -> None:
    results: list[str] = []
    errors: list[str] = []
    reports = WatchReports(lambda: None, errors.append, lambda _: None)
    with install_podgate(api_alone, identities.files, POLICY, ["events-going"], servers=0) as installation:
        async with await connect(installation.kubeconfig()) as client:
            sender = EventSender(client, "i" * 300, reports=reports, on_result=results.append)
            sending = asyncio.create_task(sender.run())

            async def send_event(occasion: str) -> str:
                regarding = Regarding("apps/v1", "ReplicaSet", "events-going", "a" * 63 + ("." + "a" * 62) * 3, "uid")
                note = clip_note("\u00fc" * 2000)
                assert sender.offer(
                    Happening(regarding, EventType.WARNING, "QuotaExceeded", "CreatePod", note, occasion, 1)
                )
                expected_count = len(results) + 1
                await wait_until(lambda: len(results) == expected_count)
                return results[-1]

            assert [await send_event("1"), await send_event("1"), await send_event("2")] == [
                "written",
                "known",
                "written",
            ]
            # Without a namespace controller the namespace stays terminating.
            await asyncio.to_thread(api_alone.kubectl, "delete", "namespace", "events-going", "--wait=false")
            assert await send_event("3") == "dropped"
            assert errors == []
            sending.cancel()
