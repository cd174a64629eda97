"""The shared cluster, a private one for disruptive tests, and the components' logs after a failure."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.admission_configuration import stand_in_service
from tests.cluster.controller_fixture import MEMORY
from tests.cluster.controlplane import API_ALONE, COMPONENTS, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.kwok import NODES
from tests.redis_servers import RedisServer, names


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    """Make what servers are started with, and whom the API server calls them as."""
    return Identities.create(tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="session")
def plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start one cluster for all tests.

    Use namespaces of your own, take your webhook configurations away afterwards, and leave the components alone.
    """
    with _cluster(identities) as running:
        yield running


@pytest.fixture(scope="module")
def api_alone(identities: Identities) -> Iterator[ControlPlane]:
    """Start an API server with its etcd for the tests of one module: no scheduler, no controllers, no Nodes."""
    with _api_alone(identities) as running:
        yield running


@pytest.fixture(scope="module")
def another_api_alone(identities: Identities) -> Iterator[ControlPlane]:
    """Start that of another cluster."""
    with _api_alone(identities) as running:
        yield running


@pytest.fixture
def own_plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start a cluster for this test alone: stop what you like."""
    with _cluster(identities) as running:
        yield running


@pytest.fixture
def a_redis(shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    """Return one without data, for tests that ask nothing of it but that servers share it."""
    return shared_redis(names()[0])


@pytest.fixture(scope="module", params=[MEMORY, "redis"])
def store(request: pytest.FixtureRequest) -> str:
    """Name the store of the counters: a module that asks for it runs once on each."""
    return str(request.param)


@pytest.fixture(scope="module")
def store_url(store: str, shared_redis: Callable[[str], RedisServer]) -> str:
    return MEMORY if store == MEMORY else shared_redis(names()[0]).url


@contextmanager
def _api_alone(identities: Identities) -> Iterator[ControlPlane]:
    with ControlPlane(callers=identities.callers, components=API_ALONE) as running:
        running.apply(*stand_in_service())
        yield running


@contextmanager
def _cluster(identities: Identities) -> Iterator[ControlPlane]:
    with ControlPlane(callers=identities.callers) as running:
        running.apply(*stand_in_service())
        running.add_nodes(*NODES)
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the ends of the components' logs to a failure."""
    report = yield
    planes = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, ControlPlane)]
    for running in planes if report.failed else ():
        report.sections += [(f"end of the log of {name}", _complaints(running.log(name, 200))) for name in COMPONENTS]
    return report


def _complaints(log: str) -> str:
    """Leave out what klog and etcd say for information."""
    lines = [line for line in log.splitlines() if not re.match(r'I\d{4} |{"level":"info"', line)]
    return "\n".join(lines[-15:])
