"""Remedies for failed calls from the API server to Podgate, by the error that it reports."""

import re
from typing import NamedTuple

FLAG = "--admission-control-config-file"
FOLDER = "/etc/kubernetes/podgate"
_URL = re.compile(r'"https://[^"]*"')
"""The URL of a call, whose query names a timeout, also if the call fails for another reason."""
_FLAG_REMEDY = (
    f"kube-apiserver sends its client certificate and token only with {FLAG}: on each control plane node, write the"
    f" files (podgate apiserver-files --out {FOLDER} --token own, with cert-manager --token cluster; or kubectl apply"
    f" -k manifests/apiserver), mount {FOLDER} into kube-apiserver if it runs in a Pod, add"
    f" {FLAG}={FOLDER}/admission-configuration.yaml, and wait until it has restarted: docs/apiserver.md"
)
_NETWORK_REMEDY = (
    "the API server cannot reach the server: check the Service and its endpoints, NetworkPolicies and firewalls between"
    " the control plane nodes and the server"
)


class _Cause(NamedTuple):
    texts: tuple[str, ...]
    remedy: str


_CAUSES = (
    _Cause(
        ("connection refused",),
        "nothing listens at this address: check host and port of the server and of its Service",
    ),
    _Cause(("dial tcp", "dial udp", "lookup "), _NETWORK_REMEDY),
    _Cause(
        ("x509:", "certificate signed by unknown authority", "certificate is valid for"),
        "the serving certificate is not trusted: caBundle must contain its CA, and its names the host of the webhooks",
    ),
    _Cause(
        (
            "tls:",
            "EOF",
            "connection reset",
            "provide credentials",
            "nauthorized",
            "orbidden",
            "broken pipe",
            "closed network",
        ),
        _FLAG_REMEDY,
    ),
    _Cause(
        (
            "no such host",
            "no endpoints",
            "not found",
            "deadline exceeded",
            "timed out",
            "timeout",
            "unreachable",
        ),
        _NETWORK_REMEDY,
    ),
)


def find_remedy(reason: str) -> str:
    """Return the remedy for a failed call; `reason` is the text of the API server, "" if it gave none."""
    text = _URL.sub("", reason)
    for cause in _CAUSES:
        if any(mark in text for mark in cause.texts):
            return cause.remedy
    return _FLAG_REMEDY
