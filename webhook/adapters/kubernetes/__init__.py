"""What this program has in Kubernetes: the policy and the labels of Namespaces, by list and watch; and a Lease."""

from webhook.adapters.kubernetes.client import connect
from webhook.adapters.kubernetes.lease import Lease, LeasePace
from webhook.adapters.kubernetes.namespaces import WatchedNamespaces
from webhook.adapters.kubernetes.pace import Pace
from webhook.adapters.kubernetes.policy import ConfigMapPolicy

__all__ = ["ConfigMapPolicy", "Lease", "LeasePace", "Pace", "WatchedNamespaces", "connect"]
