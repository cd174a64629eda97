"""Causes in the node of a Pod: it is not ready, or gone."""

from collections.abc import Mapping

from webhook.core.diagnosis.objects import ReportedNode, ReportedPod
from webhook.core.diagnosis.report import Cause


def node_cause(pod: ReportedPod, hosts: Mapping[str, ReportedNode | None] | None) -> Cause | None:
    """Return what is wrong with the node of a Pod; None if nothing is, or if nodes were not read."""
    name = pod.spec.node_name
    if not name or hosts is None or name not in hosts:
        return None
    host = hosts[name]
    if host is None:
        again = "" if pod.metadata.owner_references else ", then create it again"
        return Cause(f"node {name} does not exist", f"wait until Kubernetes has deleted the Pod{again}")
    ready = next((one for one in host.status.conditions or () if one.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return None
    why = ": ".join(text for text in (ready.reason, ready.message) if text)
    return Cause(f"node {name} is not ready{f': {why}' if why else ''}", f"repair the kubelet of node {name}")
