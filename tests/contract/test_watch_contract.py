"""The fake API server satisfies the contract of watches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.watch_contract import Watching
from tests.harness.fake_apiserver import CONFIGMAPS, NAMESPACES, FakeApiServer, drop, fake_apiserver


class FakeCluster:
    """A `watch_contract.Cluster` of the fake API server."""

    def __init__(self, fake: FakeApiServer, folder: Path) -> None:
        self._fake = fake
        self.kubeconfig = folder / "kubeconfig"

    async def put_namespace(self, name: str, **labels: str) -> None:
        self._fake.put(NAMESPACES, name, labels=labels)

    async def remove_namespace(self, name: str) -> None:
        self._fake.remove(NAMESPACES, name)

    async def put_policy(self, text: str) -> None:
        self._fake.put(CONFIGMAPS, "podgate-policy", data={"policy.yaml": text})

    async def remove_policy(self) -> None:
        self._fake.remove(CONFIGMAPS, "podgate-policy")

    async def find_last_good(self) -> str | None:
        found = self._fake.find_stored(CONFIGMAPS, "podgate-policy-last-good")
        return found["data"]["policy.yaml"] if found else None

    @asynccontextmanager
    async def disconnect(self, *, forgotten: bool = False) -> AsyncIterator[None]:
        self._fake.always = {"list": drop, "watch": drop}
        self._fake.break_watches()
        yield
        if forgotten:
            self._fake.compact()
        self._fake.always = {}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with fake_apiserver(tmp_path) as fake:
        yield FakeCluster(fake, tmp_path)


class TestFakeApiServer(Watching):
    pass
