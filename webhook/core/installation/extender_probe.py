"""Probe of the extender: a Pod that it refuses on every node, which shows that kube-scheduler asks it."""

from webhook.core.document.configmap import NAMESPACE
from webhook.core.kubernetes.pod import Pod

LABEL = "podgate.io/extender-probe"
REASON = "refused by the extender, which was to be shown"


def is_probe(pod: Pod) -> bool:
    """Return whether a Pod is a probe. Only in Podgate's own namespace: others could use it to keep Pods pending."""
    return pod.metadata.namespace == NAMESPACE and LABEL in (pod.metadata.labels or {})
