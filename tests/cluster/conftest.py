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
    """Create the files of servers and the identities of the API server."""
    return Identities.create(tmp_path_factory.mktemp("identities"))


@pytest.fixture(scope="package")
def plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start one cluster for all tests of this folder; it ends before the worker runs tests of another.

    Tests use their own namespaces, delete their webhook configurations, and do not stop components.
    """
    with _cluster(identities) as running:
        yield running


@pytest.fixture(scope="package")
def api_alone(identities: Identities) -> Iterator[ControlPlane]:
    """Start an API server with its etcd for all tests of this folder: no scheduler, no controllers, no Nodes.

    Tests may restart both, and otherwise use it as they use `plane`.
    """
    with _api_alone(identities) as running:
        yield running


@pytest.fixture(scope="module")
def another_api_alone(identities: Identities) -> Iterator[ControlPlane]:
    """Start the API server of another cluster."""
    with _api_alone(identities) as running:
        yield running


@pytest.fixture
def own_api_alone(identities: Identities) -> Iterator[ControlPlane]:
    """Start an API server with its etcd for one test, which counts its failures."""
    with _api_alone(identities) as running:
        yield running


@pytest.fixture
def own_plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start a cluster for one test, which may stop components."""
    with _cluster(identities) as running:
        yield running


@pytest.fixture
def a_redis(shared_redis: Callable[[str], RedisServer]) -> RedisServer:
    """Return a Redis without data for tests that only share it between servers."""
    return shared_redis(names()[0])


@pytest.fixture(scope="module", params=[MEMORY, "redis"])
def store(request: pytest.FixtureRequest) -> str:
    """Name the store of the counters: a module that uses this fixture runs once on each store."""
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
        report.sections += [(f"end of the log of {name}", _warnings(running.log(name, 200))) for name in COMPONENTS]
    return report


def _warnings(log: str) -> str:
    """Return the last lines of a log without klog's and etcd's info messages."""
    lines = [line for line in log.splitlines() if not re.match(r'I\d{4} |{"level":"info"', line)]
    return "\n".join(lines[-15:])
