"""Contract of watches, run on the fake API server and on a real one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.harness.policy_checks import ImmediateCheck
from tests.timeouts import HANG_SECONDS
from webhook.adapters.kubernetes import ApiTiming, ConfigMapPolicy, WatchedNamespaces, connect
from webhook.core.policy.model import LoadedPolicy
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.ports import WatchReports

QUICK = ApiTiming(first_pause_seconds=0.02, pause_seconds_max=0.2, cool_down_seconds=0)


class Cluster(Protocol):
    """A cluster, as its other clients change it."""

    @property
    def kubeconfig(self) -> Path: ...

    async def put_namespace(self, name: str, **labels: str) -> None:
        """Create it, or replace its labels."""
        ...

    async def remove_namespace(self, name: str) -> None: ...

    async def put_policy(self, text: str) -> None: ...

    async def remove_policy(self) -> None: ...

    async def find_last_good(self) -> str | None: ...

    def disconnect(self, *, forgotten: bool = False) -> AbstractAsyncContextManager[None]:
        """Cut open connections, and refuse new ones until the end; `forgotten`: older versions are compacted then."""
        ...


class Clock:
    def now_us(self) -> int:
        return 0


class Recorder:
    def on_policy_loaded(self, loaded: LoadedPolicy) -> None: ...

    def on_policy_failed(self, errors: Sequence[str]) -> None: ...


class Follower:
    """Both adapters on one connection, running."""

    def __init__(self, client: Any, timing: ApiTiming) -> None:
        self.troubles: list[str] = []
        self.overs: list[str] = []
        self.contacts = 0
        reports = WatchReports(self._contact, self.troubles.append, self.overs.append)
        options: dict[str, Any] = {"reports": reports, "timing": timing}
        recorder: Any = Recorder()
        self.keeper = PolicyReceiver(recorder, Clock(), ImmediateCheck())
        self.policy = ConfigMapPolicy(client, self.keeper, **options)
        self.keeper.rollout.keep_last_good = self.policy.keep_last_good
        self.namespaces = WatchedNamespaces(client, **options)

    def _contact(self) -> None:
        self.contacts += 1

    def find_pods_limit(self) -> str | None:
        loaded = self.keeper.get_current()
        quota = loaded.policy.services[0].quota if loaded else None
        return quota.windows[0].hard["pods"].text if quota else None

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for a change over the network."""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not holds():  # noqa: ASYNC110  there is no event
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"timed out; reported: {self.troubles}, {self.keeper.list_errors()}") from None


@asynccontextmanager
async def follow(cluster: Cluster, timing: ApiTiming = QUICK) -> AsyncIterator[Follower]:
    async with await connect(cluster.kubeconfig) as client:
        follower = Follower(client, timing)
        running = [asyncio.create_task(watcher.run()) for watcher in (follower.policy, follower.namespaces)]
        try:
            yield follower
            assert not any(task.done() for task in running), "following ends only when it is cancelled"
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def wait_until_kept(cluster: Cluster, text: str) -> None:
    """Wait until this is the last good policy."""
    async with asyncio.timeout(HANG_SECONDS):
        while await cluster.find_last_good() != text:  # noqa: ASYNC110  it happens on the server
            await asyncio.sleep(0.01)


def document(pods: int) -> str:
    return (
        "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- name: payment-api\n"
        f"  match: {{namespaces: [payments]}}\n  quota: {{windows: [{{window: 1m, hard: {{pods: {pods}}}}}]}}\n"
    )


BAD = document(5).replace("pods", "pod")


class Watching:
    """The tests. Each uses its own Namespaces: a real one takes time to end."""

    async def test_initial_and_changed_objects_are_known(self, cluster: Cluster) -> None:
        await cluster.put_policy(document(1))
        await cluster.put_namespace("known-a", tier="prod")
        async with follow(cluster) as follower:
            labels = follower.namespaces.find_labels
            await follower.wait_until(lambda: "tier" in (labels("known-a") or {}) and follower.find_pods_limit() == "1")
            await cluster.put_namespace("known-a", tier="test")
            await cluster.put_namespace("known-b")
            await cluster.put_policy(document(2))
            await follower.wait_until(lambda: (labels("known-a") or {}).get("tier") == "test")
            await follower.wait_until(lambda: labels("known-b") is not None and follower.find_pods_limit() == "2")
            await cluster.remove_namespace("known-b")
            await follower.wait_until(lambda: labels("known-b") is None)
            assert follower.troubles == []

    async def test_bad_or_deleted_policy_changes_nothing_and_a_good_one_is_copied(self, cluster: Cluster) -> None:
        await cluster.put_policy(document(1))
        async with follow(cluster) as follower:
            await follower.wait_until(lambda: follower.find_pods_limit() == "1")
            await wait_until_kept(cluster, document(1))
            await cluster.put_policy(BAD)
            await follower.wait_until(lambda: bool(follower.keeper.list_errors()))
            [error] = follower.keeper.list_errors()
            assert error.startswith("configmap podgate-system/podgate-policy: policy.yaml:6:")
            await cluster.remove_policy()
            await follower.wait_until(lambda: "there is none" in follower.keeper.list_errors()[0])
            assert follower.find_pods_limit() == "1"
            await cluster.put_policy(document(2))
            await follower.wait_until(lambda: follower.find_pods_limit() == "2")
            await wait_until_kept(cluster, document(2))
            assert follower.troubles == []

    async def test_start_with_a_bad_policy_uses_the_last_good(self, cluster: Cluster) -> None:
        await cluster.put_policy(document(3))
        async with follow(cluster) as follower:
            await follower.wait_until(lambda: follower.find_pods_limit() == "3")
            await wait_until_kept(cluster, document(3))
        await cluster.put_policy(BAD)
        async with follow(cluster) as follower:
            await follower.policy.refresh()
            assert follower.find_pods_limit() == "3"
            assert "podgate-policy: policy.yaml:6:" in follower.keeper.list_errors()[0]

    async def test_document_of_nearly_a_mebibyte_is_loaded_and_copied(self, cluster: Cluster) -> None:
        text = document(1) + "# " + "\u00e9" * 450_000 + "\n"
        await cluster.put_policy(text)
        async with follow(cluster) as follower:
            await wait_until_kept(cluster, text)
            changed = text.replace("pods: 1}", "pods: 2}")
            await cluster.put_policy(changed)
            await follower.wait_until(lambda: follower.find_pods_limit() == "2")
            await wait_until_kept(cluster, changed)
            assert follower.troubles == []

    async def test_unknown_objects_are_looked_up_and_read_at_once(self, cluster: Cluster) -> None:
        await cluster.put_policy(document(1))
        await cluster.put_namespace("looked-up", tier="prod")
        async with await connect(cluster.kubeconfig) as client:
            follower = Follower(client, QUICK)
            await follower.policy.refresh()
            assert follower.find_pods_limit() == "1"
            assert follower.namespaces.find_labels("looked-up") is None
            found = await follower.namespaces.look_up_labels("looked-up")
            assert found is not None
            assert found["tier"] == "prod"
            assert follower.namespaces.find_labels("looked-up") == found
            assert await follower.namespaces.look_up_labels("never-made") is None
            assert follower.troubles == []

    async def test_changes_during_a_disconnection_are_known_afterwards(self, cluster: Cluster) -> None:
        await self._check_disconnection(cluster, "cut", forgotten=False)

    async def test_changes_before_a_compaction_are_known_afterwards(self, cluster: Cluster) -> None:
        await self._check_disconnection(cluster, "forgotten", forgotten=True)

    async def _check_disconnection(self, cluster: Cluster, name: str, *, forgotten: bool) -> None:
        await cluster.put_policy(document(1))
        await cluster.put_namespace(f"{name}-gone")
        async with follow(cluster) as follower:
            labels = follower.namespaces.find_labels
            await follower.wait_until(lambda: labels(f"{name}-gone") is not None and follower.find_pods_limit() == "1")
            await cluster.put_namespace(f"{name}-changed", tier="prod")  # so that the watch has a version of its own
            await cluster.put_policy(document(2))
            await follower.wait_until(
                lambda: labels(f"{name}-changed") is not None and follower.find_pods_limit() == "2"
            )
            async with cluster.disconnect(forgotten=forgotten):
                await cluster.remove_namespace(f"{name}-gone")
                await cluster.put_namespace(f"{name}-changed", tier="test")
                await cluster.put_namespace(f"{name}-new")
                await cluster.put_policy(document(3))
                assert follower.find_pods_limit() == "2", "no change arrives"
                await follower.policy.refresh()
                assert follower.troubles, "the outage is reported"
            await follower.wait_until(lambda: labels(f"{name}-new") is not None and follower.find_pods_limit() == "3")
            assert labels(f"{name}-gone") is None
            assert (labels(f"{name}-changed") or {})["tier"] == "test"
            await cluster.put_policy(document(4))
            await follower.wait_until(lambda: follower.find_pods_limit() == "4")
