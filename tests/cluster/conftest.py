"""The shared cluster, a private one for tests that break things, and what the components said where a test fails."""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.callers import stand_in_service
from tests.cluster.controlplane import COMPONENTS, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.kwok import NODES


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


@pytest.fixture
def own_plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start a cluster for this test alone: stop what you like."""
    with _cluster(identities) as running:
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
