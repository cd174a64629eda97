"""KubeSchedulerConfiguration of a kube-scheduler that asks the extender.

Why the extender does not bind: docs/design/no-bind-verb.md.
"""

from dataclasses import dataclass
from typing import Any

DEFAULT_SCHEDULER, DEFAULT_LEASE = "default-scheduler", ("kube-system", "kube-scheduler")
"""Profile and Lease of the cluster's own kube-scheduler."""
VERBS = ("filter", "prioritize", "preempt")
BACKOFF_SECONDS_MAX = 2
COMMENTS = {
    "podMaxBackoffSeconds": "before Kubernetes 1.33 a Pod that is woken waits so long at most",
    "percentageOfNodesToScore": "up to 1,000 nodes: a sample may hold hot nodes only",
    "preemptVerb": "without it Pods are evicted for one that is refused afterwards",
    "weight": "score x weight x 10 is added to the scores of the scheduler's plugins",
    "nodeCacheCapable": "otherwise each call sends whole nodes, and is refused",
    "ignorable": "without an answer the Pod is scheduled by the scheduler's own rules",
    "httpTimeout": "while a replica hangs, each Pod holds all up twice as long",
}
"""Why a field has its value, by its name."""


@dataclass(frozen=True, slots=True)
class ExtenderAccess:
    """How the scheduler reaches the extender: its URL, and the scheduler's files for mutual TLS."""

    url: str
    ca_file: str
    cert_file: str
    key_file: str
    server_name: str | None = None
    """Name in the extender's certificate, None for the host of the URL."""


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What else differs between schedulers."""

    profiles: tuple[str, ...]
    lease: tuple[str, str] | None
    """Namespace and name of the Lease by which replicas elect a leader; None for a single replica."""
    weight: int
    http_timeout: str
    percentage_of_nodes_to_score: int
    kubeconfig: str | None = None
    """None in a Pod with a ServiceAccount."""


def render_scheduler_configuration(extender: ExtenderAccess, options: SchedulerOptions) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration, in the order in which it reads best."""
    files = {"caFile": extender.ca_file, "certFile": extender.cert_file, "keyFile": extender.key_file}
    connection = {} if options.kubeconfig is None else {"clientConnection": {"kubeconfig": options.kubeconfig}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **connection,
        "leaderElection": _render_election(options.lease),
        "podMaxBackoffSeconds": BACKOFF_SECONDS_MAX,
        "percentageOfNodesToScore": options.percentage_of_nodes_to_score,
        "profiles": [{"schedulerName": name} for name in options.profiles],
        "extenders": [
            {
                "urlPrefix": extender.url,
                **{f"{verb}Verb": verb for verb in VERBS},
                "weight": options.weight,
                "enableHTTPS": True,
                "nodeCacheCapable": True,
                "ignorable": True,
                "httpTimeout": options.http_timeout,
                "tlsConfig": files if extender.server_name is None else files | {"serverName": extender.server_name},
            }
        ],
    }


def _render_election(lease: tuple[str, str] | None) -> dict[str, Any]:
    """Return the leader election: by its default Lease the second scheduler would wait for the first one to end."""
    if lease is None:
        return {"leaderElect": False}
    return {"leaderElect": True, "resourceNamespace": lease[0], "resourceName": lease[1]}
