"""The extender's wire format, and nearness by levels."""

import json

import msgspec
import pytest

from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy_fields.scheduling import Near
from webhook.core.scheduling import extender_api as api
from webhook.core.scheduling.node_table import SchedulableNode
from webhook.core.scheduling.topology import Nearness

POD = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}


def test_request_with_node_names_is_decoded_and_one_with_whole_nodes_names_the_remedy() -> None:
    asked = api.decode(json.dumps({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}).encode(), api.ExtenderArgs)
    assert (asked.pod.metadata.uid, api.read_node_names(asked)) == ("u", ("a", "b"))
    whole = api.decode(json.dumps({"Pod": POD, "Nodes": {"items": []}}).encode(), api.ExtenderArgs)
    with pytest.raises(api.BadExtenderRequestError, match="nodeCacheCapable: true"):
        api.read_node_names(whole)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"Pod": 1}', b"\xff", b'{"Pod": {"metadata": {}}}'])
def test_other_bodies_are_bad_requests(body: bytes) -> None:
    with pytest.raises(api.BadExtenderRequestError):
        api.decode(body, api.ExtenderArgs)


def test_victims_pass_unchanged() -> None:
    victims = {"a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 2}, "b": {"Pods": None}}
    args = api.decode(json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode(), api.PreemptionArgs)
    answer = json.loads(msgspec.json.encode(api.PreemptionResult({"a": (args.victims or {})["a"]})))
    assert answer == {"NodeNameToMetaVictims": {"a": victims["a"]}}


def test_nearness_is_that_of_the_first_level_shared() -> None:
    def node(name: str, rack: str, zone: str, region: str) -> SchedulableNode:
        names = ("rack", "zone", "region")
        labels = {
            f"topology.kubernetes.io/{level}": value for level, value in zip(names, (rack, zone, region), strict=True)
        }
        return SchedulableNode(name, 1, 1, labels)

    near, host = Nearness(Near(LabelSelector())), node("host", "r1", "z1", "R")
    near.add(host.labels)
    near.add({})
    others = [
        node("-".join(place), *place)
        for place in (("r1", "z1", "R"), ("r2", "z1", "R"), ("r3", "z2", "R"), ("r4", "z3", "S"))
    ]
    assert [near.rate_node(node) for node in others] == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert near.rate_node(SchedulableNode("bare", 1, 1)) == 0
    near.remove(host.labels)
    assert [near.rate_node(node) for node in others] == [0, 0, 0, 0]
