"""NetworkPolicies: which rules admit callers to a port. What selects a Pod adds up: one open rule opens the port."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

from webhook.core.checks.objects import NetworkPeer, NetworkPolicyObject, NetworkPort
from webhook.core.kubernetes.selector_match import selects

_PLAIN = "plain"
"""The port of metrics and probes; which number another name stands for is not known here."""
_PLACEHOLDERS = tuple(map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
_PLACEHOLDER_6 = IPv6Network("2001:db8::/32")
"""Addresses for documentation (RFC 5737, RFC 3849), which the shipped policy has."""


class OpenRule(NamedTuple):
    """A rule that does not restrict who reaches a port, and why."""

    policy: NetworkPolicyObject
    number: int
    reason: str
    is_placeholder: bool


def list_selecting(
    policies: Iterable[NetworkPolicyObject], labels: Mapping[str, str]
) -> tuple[NetworkPolicyObject, ...]:
    """Return the policies that restrict what reaches Pods with these labels."""
    return tuple(
        policy
        for policy in policies
        if "Ingress" in (policy.spec.policy_types or ("Ingress",)) and selects(policy.spec.pod_selector, labels)
    )


def list_open_rules(policies: Iterable[NetworkPolicyObject], port: int) -> Iterator[OpenRule]:
    """List the rules that admit everybody to a port, and those whose addresses are placeholders."""
    for policy in policies:
        for number, rule in enumerate(policy.spec.ingress or ()):
            if rule.ports and not any(_covers(listed, port) for listed in rule.ports):
                continue
            if not rule.peers:
                yield OpenRule(policy, number, "absent: it admits every address", is_placeholder=False)
            for peer in rule.peers or ():
                yield from _list_open_peers(policy, number, peer)


def _list_open_peers(policy: NetworkPolicyObject, number: int, peer: NetworkPeer) -> Iterator[OpenRule]:
    if peer.ip_block is not None:
        network = ip_network(peer.ip_block.cidr, strict=False)
        if not network.prefixlen and not peer.ip_block.excepted:
            yield OpenRule(policy, number, f"{network}: it admits every address", is_placeholder=False)
        elif _is_placeholder(network):
            yield OpenRule(policy, number, f"{network}: a placeholder, not your API server", is_placeholder=True)
    elif peer.namespace_selector is not None and selects(peer.namespace_selector, {}):
        yield OpenRule(policy, number, "namespaceSelector: it admits Pods of every namespace", is_placeholder=False)


def _is_placeholder(network: IPv4Network | IPv6Network) -> bool:
    if isinstance(network, IPv6Network):
        return network.subnet_of(_PLACEHOLDER_6)
    return any(map(network.subnet_of, _PLACEHOLDERS))


def _covers(listed: NetworkPort, port: int) -> bool:
    if listed.protocol != "TCP":
        return False
    if isinstance(listed.port, str):
        return listed.port != _PLAIN
    return listed.port is None or listed.port <= port <= (listed.end_port or listed.port)
