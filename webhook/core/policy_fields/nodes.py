"""The stanza `nodes` of the document: the sources of the load of nodes, and its average over time."""

from typing import Annotated

from msgspec import Meta, Struct, field

from webhook.core.kubernetes.quantity import Duration, Number
from webhook.core.kubernetes.types import LabelKey, format_of
from webhook.core.policy_fields.field_types import Choice, Name, NonEmpty, default_duration, default_number

PromQl = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 4096})]


class Profile(Choice):
    """Exporter whose metrics the built-in queries read."""

    NODE_EXPORTER = "NodeExporter"
    KUBELET_RESOURCE = "KubeletResource"
    KUBELET_CADVISOR = "KubeletCadvisor"


PROFILES_WITH_PRESSURE = frozenset({Profile.NODE_EXPORTER, Profile.KUBELET_CADVISOR})
"""The kubelet's resource metrics have no PSI, nor does the metrics API."""


class DecayRules(Struct, frozen=True):
    """Weight of a sample: `factor` to the power of its age divided by `every`."""

    factor: Annotated[Number, Meta(extra_json_schema={"minimum": 0.01, "maximum": 1})] = default_number(0.8)
    every: Duration = default_duration("30s")


class NodeQueries(Struct, frozen=True, rename="camel"):
    """PromQL queries that replace those of the profile, each with one value for each node.

    `cpu` in cores, `memory` in bytes, `latency` in seconds; the pressures are shares of time, from 0 to 1.
    """

    cpu: PromQl | None = None
    memory: PromQl | None = None
    latency: PromQl | None = None
    cpu_pressure: PromQl | None = None
    memory_pressure: PromQl | None = None
    io_pressure: PromQl | None = None


PROMETHEUS_FILES = "/etc/podgate/prometheus"
"""Where the manifests and the chart mount the credentials of Prometheus; the extender sends no other files."""


class BasicAuth(Struct, frozen=True, rename="camel"):
    """Files with the name and the password of a user, as in a Secret of type kubernetes.io/basic-auth."""

    username_file: Name
    password_file: Name


class PrometheusSource(Struct, frozen=True, rename="camel"):
    """A Prometheus server. The label `nodeLabel` of a sample names the node, or else the label `instance`."""

    url: Annotated[str, format_of("http-url")]
    profile: Profile = Profile.NODE_EXPORTER
    node_label: LabelKey = "node"
    queries: NodeQueries = NodeQueries()
    ca_file: Name | None = None
    token_file: Name | None = None
    basic_auth: BasicAuth | None = None


class MetricsApiSource(Struct, frozen=True):
    """The metrics API (metrics.k8s.io)."""


class RequestsSource(Struct, frozen=True):
    """The requests of the Pods on a node. They are not measured, and make no node hot."""


class LoadSource(Struct, frozen=True, rename={"metrics_api": "metricsAPI"}):
    """A source of load: exactly one of these fields."""

    prometheus: PrometheusSource | None = None
    metrics_api: MetricsApiSource | None = None
    requests: RequestsSource | None = None


class Nodes(Struct, frozen=True, rename="camel"):
    """The load of each node is that of the first source whose data is not older than `staleAfter`.

    A node that is no longer measured while others are keeps its last load until `forgetAfter`.
    """

    sources: Annotated[tuple[LoadSource, ...], NonEmpty]
    refresh: Duration = default_duration("15s")
    window: Duration = default_duration("5m")
    decay: DecayRules = field(default_factory=DecayRules)
    stale_after: Duration = default_duration("90s")
    forget_after: Duration = default_duration("15m")
