"""NodeResourceTopologies: each object of a list is read or named, and the zones are those that are written."""

import json
from typing import Any

import msgspec

from tests.core.ranges_model import parse_amount
from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message, read_json
from webhook.adapters.kubernetes.api.requests import GarbledError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject, decode_item, decode_list
from webhook.adapters.kubernetes.nodes import _TOPOLOGIES, _Topology
from webhook.core.json_depth import make_readable
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.numa import NumaDemand, NumaZones

FORM = Form.JSON
WORDS = (
    *(
        "zones",
        "resources",
        "available",
        "allocatable",
        "capacity",
        "attributes",
        "topologyPolicies",
        "metadata",
        "items",
    ),
    *(
        "topologyManagerPolicy",
        "single-numa-node",
        "topologyManagerScope",
        "pod",
        "container",
        "Node",
        "node-0",
        "node-10",
    ),
    *(
        "SingleNUMANodePodLevel",
        "nodeTopologyPodsFingerprint",
        "pfp0v001fe7dbc30d9bb1fa0",
        "topology.node.k8s.io/fingerprint",
    ),
    *("cpu", "memory", "nvidia.com/gpu", "4", "8Gi", "500m", "1e3", "0", "-1", "1e999"),
)
_SIMPLE = frozenset("0123456789")
_DIGITS_MAX = 15
_LIMITS = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
_POD = msgspec.convert(
    {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": _LIMITS}}]}},
    Pod,
)
_demand = NumaDemand.from_pod(_POD)


class _RawItems(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def list_seeds() -> list[bytes]:
    amounts = [
        {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "3"},
        {"name": "memory", "available": "8Gi"},
    ]
    zones = [{"name": f"node-{number}", "type": "Node", "resources": amounts} for number in (0, 10, 2)]
    single = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ]
    usual = {"metadata": {"name": "n1", "resourceVersion": "7"}, "zones": zones, "attributes": single}
    fingerprint = {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001fe7dbc30d9bb1fa0"}
    items: list[dict[str, Any]] = [
        usual,
        {**usual, "attributes": [*single, fingerprint]},
        {**usual, "attributes": None, "topologyPolicies": ["SingleNUMANodePodLevel"]},
        {**usual, "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": "many"}]}]},
        {
            **usual,
            "zones": [{"name": "x", "type": "Node", "resources": [{"name": "cpu", "available": 4, "allocatable": 8}]}],
        },
        {**usual, "metadata": {"name": "n2", "annotations": {"topology.node.k8s.io/fingerprint": "pfp0v001"}}},
        {**usual, "zones": None},
        {"zones": zones},
    ]
    lists = [items[:1], items[:3], items[3:5], items[5:7], items[7:], []]
    return [json.dumps({"metadata": {"resourceVersion": "9"}, "items": each}).encode() for each in lists]


def check(data: bytes) -> None:
    try:
        found, unread = decode_list(data, _TOPOLOGIES.items, _TOPOLOGIES.item)
    except GarbledError as error:
        check_message(str(error).encode("ascii", "backslashreplace").decode())
        return
    data = make_readable(data)  # what is deeper is left out, even if it is no JSON
    sent = read_json(data).get("items") or []
    raw = msgspec.json.decode(data, type=_RawItems).items or []
    items = found.items or []
    assert len(items) + len(unread) == len(sent)
    for each in unread:
        _check_unread(each)
    readable = [
        item for part, item in zip(raw, sent, strict=True) if not isinstance(decode_item(part, _Topology), UnreadObject)
    ]
    assert len(readable) == len(items)
    for topology, item in zip(items, readable, strict=True):
        zones = topology.read_zones()
        if zones is not None:
            _check_zones(zones, item)


def _check_unread(unread: UnreadObject) -> None:
    assert unread.reason
    assert len(unread.reason) < 4000


def _check_zones(zones: NumaZones, item: Any) -> None:
    """Demand that plain amounts are those that are written, in billionths, and that every question has an answer."""
    written = [zone for zone in item.get("zones") or () if zone.get("type") == "Node"]
    assert len(zones.zones) == len(written)
    for zone in zones.zones:
        assert all(isinstance(amount, int) and amount >= 0 for amount in zone.values())
    for zone in written:
        plain = {each.get("name", ""): str(each.get("available", "0")) for each in zone.get("resources") or ()}
        plain = {
            name: text for name, text in plain.items() if _SIMPLE.issuperset(text) and 0 < len(text) <= _DIGITS_MAX
        }
        expected = {name: int(parse_amount(text) * 10**9) for name, text in plain.items()}
        assert any(expected.items() <= found.items() for found in zones.zones), expected
    left = zones.subtract(_demand.total)
    assert isinstance(_demand.fits(zones), bool)
    assert (_demand.find_shortage(zones) is None) == (_demand.fill_zones(zones) is not None)
    assert not _demand.fits(left) or _demand.fits(zones), "less room for the same Pod"
    assert isinstance(_demand.is_too_large(zones), bool)
