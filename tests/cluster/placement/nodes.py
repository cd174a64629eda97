"""Nodes with regions, zones, disks and taints, for one sample."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.kwok import is_usable, node
from tests.core.generating.vocabulary import HOME, NODE_NAMES, REGION, ZONE

Json = dict[str, Any]
_KEYS = (REGION, ZONE, "disk", "a/b")
_AT_HOME = dict.fromkeys(_KEYS, HOME)
_SAMPLE_LABEL = {"made-for": "sample"}
_TAINTS = (
    {"key": "gpu", "value": "a", "effect": "NoSchedule"},
    {"key": "gpu", "effect": "NoExecute"},
    {"key": "gpu", "value": "b", "effect": "PreferNoSchedule"},
)


def _labels_and_taints() -> Iterator[tuple[dict[str, str], Sequence[Json]]]:
    """Yield labels and taints: all labels at home, then one or two with another value, empty or missing."""
    yield _AT_HOME, ()
    yield _AT_HOME, ()
    for key in _KEYS:
        yield from (({**_AT_HOME, key: value}, ()) for value in ("1", "3", ""))
        yield {name: value for name, value in _AT_HOME.items() if name != key}, ()
    for one, other in itertools.combinations(_KEYS, 2):
        yield {**_AT_HOME, one: "1", other: "3"}, ()
    yield from ((_AT_HOME, (taint,)) for taint in _TAINTS)
    yield {}, ()


def _nodes() -> list[Json]:
    """Return a node for each set of labels and taints; the first ones have the names that Pods select."""
    names = itertools.chain(NODE_NAMES, map("site-{}".format, itertools.count()))
    return [
        node(name, taints, **labels, **_SAMPLE_LABEL)
        for name, (labels, taints) in zip(names, _labels_and_taints(), strict=False)
    ]


@contextmanager
def sample_nodes(plane: ControlPlane) -> Iterator[None]:
    """Create the nodes, and delete them at the end, when no Pod may be left on them."""
    [(label, value)] = _SAMPLE_LABEL.items()
    path = f"/api/v1/nodes?labelSelector={label}%3D{value}"
    plane.apply(*_nodes())
    try:
        plane.wait(lambda: all(map(is_usable, plane.api.get(path)["items"])), "the sample's nodes to be usable")
        yield
    finally:
        plane.api.request("DELETE", path)
