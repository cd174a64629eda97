"""Facts about an installation, as read from the API server and a server, at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from webhook.core.admission.exemptions import is_exempt_namespace
from webhook.core.checks.objects import (
    BudgetObject,
    ClusterObject,
    EndpointSliceObject,
    FailureEvent,
    LeaseHolderObject,
    NetworkPolicyObject,
    PodObject,
    ReplicasObject,
    ServiceObject,
)
from webhook.core.document import DocumentError, Purpose, configmap, load
from webhook.core.policy.matching import NAME_LABEL, Matcher
from webhook.core.policy.model import LoadedPolicy, Service
from webhook.core.policy_fields import Mode
from webhook.core.reporting.node_document import ShownNode
from webhook.core.webhook_configurations import (
    NAMES,
    ConfigurationName,
    TooManyEntriesError,
    leaves_out_no_call,
    render_wanted_webhooks,
)

Json = dict[str, Any]


class CertificateFact(NamedTuple):
    """A certificate, or a token: where it is, the names in it, and its lifetime."""

    object: str
    names: tuple[str, ...]
    not_before_us: int
    not_after_us: int


class TrustFact(NamedTuple):
    """The caBundle of a webhook: why the serving certificate does not verify against it, "" if it does."""

    object: str
    webhook: str
    error: str


class ProbeFact(NamedTuple):
    """A Pod created with dryRun: the status of the answer, its message, and whether Podgate has rewritten it."""

    service: str
    namespace: str
    status: int
    message: str
    is_rewritten: bool


class RightFact(NamedTuple):
    """A right that the manifests grant to a service account, and whether it has it."""

    account: str
    right: str
    is_granted: bool
    manifests: tuple[str, ...] = ()
    """The files that grant it."""


@dataclass(frozen=True)
class ClusterFacts:
    """All facts. Those that could not be read are in `unread`, by the name of their field, with the reason."""

    at_us: int
    version: str = ""
    """Version of this command."""
    unread: Mapping[str, str] = field(default_factory=dict)
    kubernetes: str = ""
    api_clock_us: int | None = None
    policy_map: configmap.ConfigMap | None = None
    overrides_map: configmap.ConfigMap | None = None
    scheduler_map: configmap.ConfigMap | None = None
    """The ConfigMap with the configuration of the second kube-scheduler."""
    wake_map: configmap.ConfigMap | None = None
    """The ConfigMap by which extenders ask for the wake of single Pods."""
    record_map: configmap.ConfigMap | None = None
    """The ConfigMap with the options of `podgate install`."""
    mutating: Sequence[Json] = ()
    validating: Sequence[Json] = ()
    namespaces: Sequence[ClusterObject] = ()
    nodes: Sequence[ClusterObject] = ()
    priority_classes: Sequence[ClusterObject] = ()
    runtime_classes: Sequence[ClusterObject] = ()
    storage_classes: Sequence[ClusterObject] = ()
    services: Sequence[ServiceObject] = ()
    endpoint_slices: Sequence[EndpointSliceObject] = ()
    deployments: Sequence[ReplicasObject] = ()
    daemon_sets: Sequence[ClusterObject] = ()
    """DaemonSets of kube-system, where the writer of kube-apiserver's files runs."""
    pods: Sequence[PodObject] = ()
    """Podgate's own Pods."""
    budgets: Sequence[BudgetObject] = ()
    network_policies: Sequence[NetworkPolicyObject] = ()
    leases: Sequence[LeaseHolderObject] = ()
    workload_pods: Sequence[PodObject] = ()
    """Pods of all namespaces."""
    replica_sets: Sequence[ReplicasObject] = ()
    failures: Sequence[FailureEvent] = ()
    secrets: Mapping[str, Sequence[CertificateFact]] = field(default_factory=dict)
    """Certificates and tokens by the name of their Secret; an absent Secret is not in it."""
    scheduler_cas: Sequence[CertificateFact] = ()
    """CAs of the extender in the scheduler's Secret."""
    extenders: Mapping[str, Sequence[ShownNode]] = field(default_factory=dict)
    """Nodes as each extender knows them, by its name; read if the policy needs an extender."""
    extender_unread: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By extender, the objects and values that it cannot read."""
    trust: Sequence[TrustFact] = ()
    processes: Mapping[str, Json] = field(default_factory=dict)
    """Status of each server and controller in the cluster, by the name of its Pod."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Why the status of a ready Pod could not be read, by its name."""
    server: str = ""
    """Name of the server whose status was read."""
    status: Json = field(default_factory=dict)
    probes: Sequence[ProbeFact] = ()
    fail_open: Mapping[str, int] = field(default_factory=dict)
    """Calls that the API server skipped because they failed, by webhook, while the Pods were created with dryRun."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Calls that the server refused meanwhile, by reason."""
    rights: Sequence[RightFact] = ()
    context: str = ""
    """Context of the kubeconfig, as given; "" for its current one."""

    @cached_property
    def _read_policy(self) -> tuple[LoadedPolicy | None, tuple[str, ...]]:
        if self.policy_map is None:
            return None, ()
        try:
            return load(configmap.read_document(self.policy_map), Purpose.SERVE).policy, ()
        except DocumentError as error:
            return None, tuple(map(str, error.problems))
        except configmap.NoDocumentError as error:
            return None, (str(error),)

    @property
    def policy(self) -> LoadedPolicy | None:
        """The live policy, None without a valid one."""
        return self._read_policy[0]

    @property
    def rollout(self) -> Json:
        """The policy's rollout as the server follows it; empty without one."""
        return self.status.get("rollout") or {}

    @property
    def scheduling_services(self) -> tuple[str, ...]:
        """The services that need a scheduler extender."""
        services = () if self.policy is None else self.policy.policy.services
        return tuple(
            service.name
            for service in services
            if service.scheduling is not None and service.modes.scheduling is not Mode.DISABLED
        )

    @property
    def policy_problems(self) -> tuple[str, ...]:
        return self._read_policy[1]

    @cached_property
    def webhooks(self) -> Mapping[ConfigurationName, Json]:
        """Podgate's live webhook configurations."""
        by_kind = {"Mutating": self.mutating, "Validating": self.validating}
        named = {
            ConfigurationName(f"{kind}WebhookConfiguration", configuration["metadata"]["name"]): configuration
            for kind, configurations in by_kind.items()
            for configuration in configurations
        }
        return {name: named[name] for name in NAMES if name in named}

    @cached_property
    def wanted_webhooks(self) -> Mapping[ConfigurationName, Sequence[Json]]:
        """The webhooks that the live policy renders; none without a valid policy, or if it needs too many."""
        if self.policy is None:
            return {}
        try:
            return render_wanted_webhooks(self.policy, all_calls=leaves_out_no_call(self.webhooks))
        except TooManyEntriesError:
            return {}

    def explain_unknown(self, fact: str) -> str:
        """Return why a fact is not known, "" if it is: it could not be read, or there is none."""
        match fact:
            case "policy":
                return self.explain_unknown("policy_map") or ("" if self.policy else "there is no valid policy")
            case "webhooks":
                unread = self.explain_unknown("mutating") or self.explain_unknown("validating")
                return unread or ("" if self.webhooks else "there are no webhook configurations")
        return self.unread.get(fact, "")

    @cached_property
    def owners(self) -> Mapping[str, tuple[Service, ...]]:
        """The services that may own Pods, by namespace; without exempt namespaces, and services that do nothing."""
        if self.policy is None:
            return {}
        policy = self.policy.policy
        matcher = Matcher(policy)
        found = {
            namespace.name: tuple(
                service
                for service in matcher.list_candidates(namespace.name)
                if matcher.may_own(service, namespace.name, labels_of(namespace))
                and not service.modes.is_all_disabled()
            )
            for namespace in self.namespaces
            if namespace.metadata.deletion_timestamp is None and not is_exempt_namespace(namespace.name, policy)
        }
        return {name: services for name, services in found.items() if services}


def labels_of(namespace: ClusterObject) -> Mapping[str, str]:
    """Return a namespace's labels, with the one that the API server writes."""
    return {**namespace.labels, NAME_LABEL: namespace.name}
