"""Kubernetes adapters: watches, Leases, ServiceStatuses, Events, credentials, gates of Pods."""

import webhook.adapters.kubernetes.library  # noqa: F401  first: it bounds what the others import
from webhook.adapters.kubernetes.access_reviews import KubernetesReviews
from webhook.adapters.kubernetes.api.client import connect
from webhook.adapters.kubernetes.api.kubeconfig_document import load_kubeconfig
from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.server_pods import ClusterDecisionPort, PodPorts
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.claims import WatchedClaims
from webhook.adapters.kubernetes.cluster_keys import ClusterKeys
from webhook.adapters.kubernetes.cluster_objects import ClusterObjects
from webhook.adapters.kubernetes.credentials import ClusterCredentials
from webhook.adapters.kubernetes.events.event_sender import PLACE_TIMING, EventSender, EventTiming, PodPlaceEvents
from webhook.adapters.kubernetes.events.observer import Events
from webhook.adapters.kubernetes.group_objects import GroupObjectReader
from webhook.adapters.kubernetes.held_controllers import HeldControllers
from webhook.adapters.kubernetes.leases.lease import Lease, LeaseTiming
from webhook.adapters.kubernetes.leases.server_leases import ServerLeases, ServerLeaseTiming
from webhook.adapters.kubernetes.namespaces import WatchedNamespaces
from webhook.adapters.kubernetes.nodes import NodeMetrics, StorageClassWake, WatchedNodes, WatchedNumaTopologies
from webhook.adapters.kubernetes.overrides_configmap import ConfigMapOverrides, ConfigMapOverridesStore
from webhook.adapters.kubernetes.plain_ports import ClusterPlainPort, LeaderPlainPort
from webhook.adapters.kubernetes.pod_evictions import KubernetesEvictions
from webhook.adapters.kubernetes.pod_gates import PodGates, open_gates
from webhook.adapters.kubernetes.pod_wakes import RequestedWakes, WakeConfigMap
from webhook.adapters.kubernetes.pods import WatchedPods, find_store, make_annotations, parse_continuity
from webhook.adapters.kubernetes.policy_configmap import ConfigMapPolicy
from webhook.adapters.kubernetes.policy_parts import ConfigMapParts, read_whole
from webhook.adapters.kubernetes.policy_revisions import ControllerRevisions
from webhook.adapters.kubernetes.rollout_state import ConfigMapRolloutState, ConfigMapRolloutStateStore
from webhook.adapters.kubernetes.self_subject_review import OwnUser
from webhook.adapters.kubernetes.slot_owners import SlotOwnerReader
from webhook.adapters.kubernetes.status_objects import PolicyRollouts, ServiceStatuses
from webhook.adapters.kubernetes.webhook_configurations import WebhookConfigurations

__all__ = [
    "PLACE_TIMING",
    "ApiError",
    "ApiTiming",
    "ClusterCredentials",
    "ClusterDecisionPort",
    "ClusterKeys",
    "ClusterObjects",
    "ClusterPlainPort",
    "ConfigMapOverrides",
    "ConfigMapOverridesStore",
    "ConfigMapParts",
    "ConfigMapPolicy",
    "ConfigMapRolloutState",
    "ConfigMapRolloutStateStore",
    "ControllerRevisions",
    "EventSender",
    "EventTiming",
    "Events",
    "GroupObjectReader",
    "HeldControllers",
    "KubernetesEvictions",
    "KubernetesReviews",
    "LeaderPlainPort",
    "Lease",
    "LeaseTiming",
    "NodeMetrics",
    "OwnUser",
    "PodGates",
    "PodPlaceEvents",
    "PodPorts",
    "PolicyRollouts",
    "RequestedWakes",
    "ServerLeaseTiming",
    "ServerLeases",
    "ServiceStatuses",
    "SlotOwnerReader",
    "StorageClassWake",
    "WakeConfigMap",
    "WatchedClaims",
    "WatchedNamespaces",
    "WatchedNodes",
    "WatchedNumaTopologies",
    "WatchedPods",
    "WebhookConfigurations",
    "connect",
    "find_store",
    "load_kubeconfig",
    "make_annotations",
    "open_gates",
    "parse_continuity",
    "read_whole",
]
