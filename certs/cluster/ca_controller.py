"""CA controller: the serving and the client trust domain in a cluster, one rotation step at a time.

The webhook configurations are read before the Secrets, and every write names the version that was read: a controller
that was overtaken meanwhile, such as a leader that has lost its Lease without noticing, overwrites nothing newer.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from cryptography import x509

from certs import ca_generations
from certs.authority import Authority, KeyPair, list_server_names
from certs.ca_generations import Generations
from certs.cluster import webhooks
from certs.cluster.api import Api
from certs.cluster.loop import TaskResult, format_error
from certs.cluster.rotation_step import RotationStepper
from certs.cluster.secrets import NAMESPACE, TLS, SecretStore, StoredSecret
from certs.cluster.trust_domain import NamedSecret, TrustDomain, parse_certificates
from certs.cluster.webhooks import CONFIGURATIONS, WebhookConfiguration
from certs.errors import CertsError
from certs.lifetimes import Lifetimes
from certs.rotation import Bundle

SERVING_CA, CLIENT_CA = "podgate-serving-ca", "podgate-client-ca"
SERVING, CLIENT = "podgate-tls", "podgate-apiserver"
SERVING_BUNDLE, CLIENT_BUNDLE = "serving-ca.crt", "ca.crt"
OTHERS = "others-ca.crt"
"""In podgate-tls, written by the operator: CAs of other clients, such as reporters."""
_SERVICE = f"podgate.{NAMESPACE}.svc"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    """Lifetimes of both trust domains, and the common name of the API server."""

    serving: Lifetimes
    client: Lifetimes
    client_name: str = "kube-apiserver"

    def list_remarks(self) -> tuple[str, ...]:
        """Return warnings about unusual lifetimes."""
        domains = {"serving": self.serving, "client": self.client}
        return tuple(f"{name}: {text}" for name, lives in domains.items() for text in lives.list_remarks())


class CaController:
    """Task: both CAs, a leaf of each, and their bundles in every place where they are trusted."""

    def __init__(self, plan: CertificatePlan) -> None:
        self._plan = plan
        self._stepper = RotationStepper()

    async def reconcile(self, api: Api, now: datetime) -> TaskResult:
        errors: list[str] = []
        try:
            domains = await self._find_domains(api, errors)
        except CertsError as error:
            return TaskResult(errors=(*errors, format_error(error)))
        return await self._stepper.take_step(domains, errors, now)

    async def _find_domains(self, api: Api, errors: list[str]) -> list[TrustDomain]:
        """Return the client domain, then the serving one, whose first leaf is stored beside the client CAs."""
        store = SecretStore(api)
        configurations = {place: await _find_or_error(webhooks.find(api, place)) for place in CONFIGURATIONS}
        tls = await _find_or_error(_find(store, SERVING))
        caller = await _find_unless_foreign(_find(store, CLIENT), errors)
        domains = [
            await _find_unless_foreign(self._build_client_domain(api, caller, tls, errors), errors),
        ]
        if isinstance(tls, CertsError):
            errors.append(format_error(tls))
        else:
            domains.append(
                await _find_unless_foreign(self._build_serving_domain(api, tls, configurations, errors), errors)
            )
        return [domain for domain in domains if domain is not None]

    async def _build_client_domain(
        self, api: Api, caller: NamedSecret | None, tls: NamedSecret | CertsError, errors: list[str]
    ) -> TrustDomain:
        ca, plan = await _find(SecretStore(api), CLIENT_CA), self._plan
        generations = ca.read_generations()

        def issue(authority: Authority, now: datetime) -> KeyPair:
            return authority.issue_client(plan.client_name, lifetime=plan.client.leaf, now=now)

        return TrustDomain(
            api=api,
            ca=ca,
            generations=generations,
            lifetimes=plan.client,
            leaf=caller,
            issue=issue,
            trusted_in=tls if isinstance(tls, NamedSecret) else NamedSecret(SERVING, StoredSecret()),
            trusted_key=CLIENT_BUNDLE,
            others=_choose_others(tls, caller, generations, errors) if isinstance(tls, NamedSecret) else frozenset(),
            unknown={SERVING: tls} if isinstance(tls, CertsError) else {},
        )

    async def _build_serving_domain(
        self,
        api: Api,
        tls: NamedSecret,
        configurations: Mapping[str, WebhookConfiguration | CertsError | None],
        errors: list[str],
    ) -> TrustDomain:
        store, plan = SecretStore(api), self._plan
        ca = await _find(store, SERVING_CA)
        # Only a new Secret needs the client CAs: an error in them must not stop the serving domain.
        clients = None if tls.secret.exists else await _find_unless_foreign(_read_generations(store, CLIENT_CA), [])
        names = _list_names(configurations, tls, errors)

        def issue(authority: Authority, now: datetime) -> KeyPair:
            return authority.issue_server(_SERVICE, tuple(names), plan.serving.leaf, now)

        return TrustDomain(
            api=api,
            ca=ca,
            generations=ca.read_generations(),
            lifetimes=plan.serving,
            leaf=tls,
            issue=issue,
            trusted_in=tls,
            trusted_key=SERVING_BUNDLE,
            leaf_kind=TLS,
            beside_leaf={CLIENT_BUNDLE: ca_generations.encode_bundle(clients or ())},
            names=frozenset(names),
            configurations={
                place: found for place, found in configurations.items() if isinstance(found, WebhookConfiguration)
            },
            unknown={place: why for place, why in configurations.items() if isinstance(why, CertsError)},
        )


async def _find_or_error(found: Awaitable[_Found]) -> _Found | CertsError:
    """Return the object or the error: renewal continues meanwhile, only no new CA starts to sign."""
    try:
        return await found
    except CertsError as error:
        return error


async def _find(store: SecretStore, name: str) -> NamedSecret:
    return NamedSecret(name, await store.find(name))


async def _read_generations(store: SecretStore, name: str) -> Generations:
    return (await _find(store, name)).read_generations()


async def _find_unless_foreign(found: Awaitable[_Found], errors: list[str]) -> _Found | None:
    """Return the object; None, with the error noted, if it lacks Podgate's label or cannot be read."""
    try:
        return await found
    except CertsError as error:
        errors.append(format_error(error))
        return None


def _choose_others(tls: NamedSecret, caller: NamedSecret | None, generations: Generations, errors: list[str]) -> Bundle:
    """Return the further client CAs in the bundle; if they cannot be determined, the present CAs stay."""
    ours = {generation.certificate for generation in generations}
    secret, there = f"Secret {NAMESPACE}/{tls.name}", parse_certificates(tls.secret.data.get(CLIENT_BUNDLE, b""))
    text = tls.secret.data.get(OTHERS, b"")
    found = parse_certificates(text)
    if text.strip() and not found:
        errors.append(f"{secret}: {OTHERS}: holds no certificates in PEM: write one after the other, or delete the key")
        found = there
    elif caller is None and (stay := there - ours - found):
        names = ", ".join(sorted(ca.subject.rfc4514_string() for ca in stay))
        what = f"keeps {names}, which may have signed the certificate in Secret {CLIENT}, which cannot be read"
        errors.append(f"{secret}: {CLIENT_BUNDLE}: {what}: fix that Secret, or add that CA to {OTHERS}")
        found |= there
    return found - ours


def _list_names(
    configurations: Mapping[str, WebhookConfiguration | CertsError | None], tls: NamedSecret, errors: list[str]
) -> dict[x509.GeneralName, None]:
    """Return the names of the Service, and further hosts in the webhook configurations; each once, in order."""
    names = dict.fromkeys(list_server_names(_SERVICE))
    current = dict.fromkeys(tls.read_names())  # a configuration that cannot be read may still use one of them
    for found in configurations.values():
        if isinstance(found, CertsError):
            names.update(current)
        elif found is not None:
            try:
                names.update(dict.fromkeys(found.names))
            except CertsError as error:
                names.update(current)
                errors.append(format_error(error))
    return names
