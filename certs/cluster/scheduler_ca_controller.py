"""CA controller of the scheduler extender: its serving domain, and the client domain of its kube-scheduler."""

from dataclasses import dataclass
from datetime import datetime

from certs import ca_generations
from certs.authority import Authority, KeyPair, list_server_names
from certs.cluster.api import Api
from certs.cluster.loop import TaskResult, format_error
from certs.cluster.rotation_step import RotationStepper
from certs.cluster.secrets import NAMESPACE, TLS, SecretStore
from certs.cluster.trust_domain import NamedSecret, TrustDomain
from certs.errors import CertsError
from certs.lifetimes import Lifetimes

EXTENDER_CA, SCHEDULER_CA = "podgate-extender-ca", "podgate-scheduler-ca"
EXTENDER, SCHEDULER = "podgate-extender-tls", "podgate-scheduler-tls"
SERVING_BUNDLE, CLIENT_BUNDLE = "serving-ca.crt", "ca.crt"
"""Keys of both Secrets: the CAs of the extender's certificate, and those of the scheduler's."""
CLIENT_NAME = "podgate-scheduler"
HOST = f"podgate-extender.{NAMESPACE}.svc"


@dataclass(frozen=True, slots=True)
class SchedulerCertificatePlan:
    """Lifetimes of both trust domains. kube-scheduler reads the serving CA at its start only: it settles for long."""

    serving: Lifetimes
    client: Lifetimes


class SchedulerCaController:
    """Task: both CAs, a leaf of each, and the bundles in the Secrets of the extender and of the scheduler."""

    def __init__(self, plan: SchedulerCertificatePlan) -> None:
        self._plan = plan
        self._stepper = RotationStepper()

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        store = SecretStore(api)
        names = (EXTENDER_CA, SCHEDULER_CA, EXTENDER, SCHEDULER)
        try:
            found = [NamedSecret(name, await store.find(name)) for name in names]
            extender_ca, scheduler_ca, extender, scheduler = found
            serving = TrustDomain(
                api=api,
                ca=extender_ca,
                generations=extender_ca.read_generations(),
                lifetimes=self._plan.serving,
                leaf=extender,
                issue=self._issue_server,
                trusted_in=scheduler,
                trusted_key=SERVING_BUNDLE,
                leaf_kind=TLS,
                beside_leaf={CLIENT_BUNDLE: ca_generations.encode_bundle(scheduler_ca.read_generations())},
                names=frozenset(list_server_names(HOST)),
            )
            client = TrustDomain(
                api=api,
                ca=scheduler_ca,
                generations=scheduler_ca.read_generations(),
                lifetimes=self._plan.client,
                leaf=scheduler,
                issue=self._issue_client,
                trusted_in=extender,
                trusted_key=CLIENT_BUNDLE,
                leaf_kind=TLS,
                beside_leaf={SERVING_BUNDLE: ca_generations.encode_bundle(extender_ca.read_generations())},
            )
        except CertsError as error:
            return TaskResult(errors=(format_error(error),))
        return await self._stepper.take_step((serving, client), [], now)

    def _issue_server(self, authority: Authority, now: datetime) -> KeyPair:
        return authority.issue_server(HOST, tuple(list_server_names(HOST)), self._plan.serving.leaf, now)

    def _issue_client(self, authority: Authority, now: datetime) -> KeyPair:
        return authority.issue_client(CLIENT_NAME, lifetime=self._plan.client.leaf, now=now)
