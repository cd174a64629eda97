"""What this program reads from Kubernetes: the policy, and the labels of Namespaces, each by list and watch."""

from webhook.adapters.kubernetes.client import connect
from webhook.adapters.kubernetes.namespaces import WatchedNamespaces
from webhook.adapters.kubernetes.pace import Pace
from webhook.adapters.kubernetes.policy import ConfigMapPolicy

__all__ = ["ConfigMapPolicy", "Pace", "WatchedNamespaces", "connect"]
