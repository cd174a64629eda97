"""Unreadable or unlabelled objects: no CA is removed on partial information."""

import asyncio
import base64
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from certs import ca_generations
from certs.authority import Authority, list_server_names
from certs.cluster.ca_controller import CLIENT, CLIENT_CA, SERVING, SERVING_CA, CaController, CertificatePlan
from certs.cluster.injection import CERTIFICATE
from certs.cluster.port_switch import PortSwitch
from certs.cluster.secrets import NAMESPACE
from certs.cluster.trust_domain import parse_certificates
from certs.cluster.webhooks import CONFIGURATIONS
from certs.inspection import is_signed_by
from certs.lifetimes import Lifetimes
from certs.token_issuer import encode_key
from tests.certs.memory_objects import DAY, GROUP, PLAN, SECRETS, START, Objects, settle
from tests.core.strategies import examples

MINUTE, POLL = timedelta(minutes=1), timedelta(seconds=10)
SHORT = CertificatePlan(
    Lifetimes.from_settle_max(3 * DAY, DAY, MINUTE), Lifetimes.from_settle_max(3 * DAY, DAY, 5 * MINUTE)
)
SERVICE_NAME = f"podgate.{NAMESPACE}.svc"
PATHS = [f"{SECRETS}/{name}" for name in (SERVING_CA, CLIENT_CA, SERVING, CLIENT)] + [
    f"{GROUP}/{configuration}" for configuration in CONFIGURATIONS
]


def manual_cluster(labelled: tuple[str, ...] = (), injected_from: str | None = None) -> Objects:
    """Return a cluster with manually created Secrets and bundles of one CA."""
    api, ca = Objects(), Authority.create("by-hand", now=START)
    trusted = ca_generations.encode_pem(ca.key_pair.certificate)
    server, client = (
        ca.issue_server(SERVICE_NAME, list_server_names(SERVICE_NAME), DAY, START),
        ca.issue_client(CLIENT, None, DAY, START),
    )
    for name, leaf in ((SERVING, server), (CLIENT, client)):
        data = {
            "tls.crt": ca_generations.encode_pem(leaf.certificate),
            "tls.key": encode_key(leaf.key),
            "ca.crt": trusted,
        }
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        api.put(f"{SECRETS}/{name}", {"metadata": {"name": name}, "data": encoded})
    for name in labelled:
        api.label(name)
    for configuration in CONFIGURATIONS:
        api.set_bundle(configuration, trusted, injected_from)
    return api


def leaf(api: Objects, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(api.secret(name)["tls.crt"])


def bundles(api: Objects, name: str) -> list[frozenset[x509.Certificate]]:
    """Return all bundles that verify the certificate of this Secret."""
    if name == CLIENT:
        return [parse_certificates(api.secret(SERVING)["ca.crt"])]
    return [api.list_trusted(configuration) for configuration in CONFIGURATIONS]


def verifies(certificate: x509.Certificate, bundle: frozenset[x509.Certificate]) -> bool:
    return any(is_signed_by(certificate, ca) for ca in bundle)


def peers_verify(api: Objects) -> bool:
    return all(verifies(leaf(api, name), bundle) for name in (SERVING, CLIENT) for bundle in bundles(api, name))


async def make_managed_cluster(plan: CertificatePlan = PLAN) -> Objects:
    api = Objects()
    await settle(api, [CaController(plan)], START)
    return api


# --- adoption ---


@pytest.mark.parametrize("order", [(SERVING, CLIENT), (CLIENT, SERVING)])
async def test_secrets_are_adopted_one_by_one_with_their_contents_in_use(order: tuple[str, str]) -> None:
    api = manual_cluster()
    before = [leaf(api, name) for name in order]
    now = START + MINUTE
    await settle(api, [CaController(PLAN)], now)
    for name in order:
        api.label(name)
        now += POLL
        await settle(api, [CaController(PLAN)], now)
        assert peers_verify(api)
    assert [leaf(api, name) for name in order] == before, "no new leaf before its CA has settled"
    await settle(api, [CaController(PLAN)], now + 6 * MINUTE)
    assert not set(before) & {leaf(api, name) for name in order}
    assert peers_verify(api)


async def test_certificates_of_cert_manager_stay_in_use_when_adopted() -> None:
    api = manual_cluster((SERVING, CLIENT), injected_from=CERTIFICATE)
    before = [leaf(api, name) for name in (SERVING, CLIENT)]
    await settle(api, [CaController(PLAN)], START + MINUTE)
    assert [leaf(api, name) for name in (SERVING, CLIENT)] == before
    assert peers_verify(api)
    assert all(
        not api.read_stored(f"{GROUP}/{configuration}")["metadata"]["annotations"] for configuration in CONFIGURATIONS
    )


async def test_ca_of_a_manually_managed_certificate_stays_trusted_and_is_reported() -> None:
    api, now = manual_cluster((SERVING,)), START + MINUTE
    ca = next(iter(parse_certificates(api.secret(SERVING)["ca.crt"])))
    _, errors = await settle(api, [CaController(PLAN)], now)
    trusted = parse_certificates(api.secret(SERVING)["ca.crt"])
    assert ca in trusted
    assert len(trusted) == 2
    [error] = [text for text in errors if "ca.crt" in text]
    assert error.startswith(f"Secret {NAMESPACE}/{SERVING}: ca.crt: keeps {ca.subject.rfc4514_string()}, ")
    api.change(SERVING, {"others-ca.crt": ca_generations.encode_pem(ca)})
    _, errors = await settle(api, [CaController(PLAN)], now)
    assert [text for text in errors if "ca.crt" in text] == []
    assert parse_certificates(api.secret(SERVING)["ca.crt"]) == trusted


async def test_cas_are_replaced_although_the_client_certificate_stays_unreadable() -> None:
    api = await make_managed_cluster()
    [old] = bundles(api, CLIENT)[0]
    api.unreadable.add(f"{SECRETS}/{CLIENT}")
    result = await CaController(PLAN).reconcile(api, START + 300 * DAY)
    assert CLIENT_CA in result.ends, "the expiry is still reported"
    _, errors = await settle(api, [CaController(PLAN)], START + 300 * DAY)
    assert [text for text in errors if CLIENT in text]
    assert len(bundles(api, CLIENT)[0] - {old}) == 1


# --- lost CAs ---


@pytest.mark.parametrize("unreadable", [SERVING, CLIENT])
async def test_lost_ca_stays_trusted_although_a_secret_is_unreadable(unreadable: str) -> None:
    api = await make_managed_cluster()
    before = leaf(api, CLIENT)
    api.change(CLIENT_CA, {"line.json": None})
    api.unreadable.add(f"{SECRETS}/{unreadable}")
    _, errors = await settle(api, [CaController(PLAN)], START + MINUTE)
    assert [text for text in errors if unreadable in text]
    assert leaf(api, CLIENT) == before
    assert peers_verify(api)
    api.unreadable.clear()
    assert (await settle(api, [CaController(PLAN)], START + MINUTE))[1] == []
    assert leaf(api, CLIENT) == before
    assert len(bundles(api, CLIENT)[0]) == 2
    await settle(api, [CaController(PLAN)], START + 10 * MINUTE)
    assert leaf(api, CLIENT) != before
    assert peers_verify(api)


async def test_adopted_serving_certificate_is_used_without_readable_configurations() -> None:
    api = manual_cluster((SERVING, CLIENT))
    before, data = leaf(api, SERVING), set(api.secret(SERVING))
    api.unreadable |= {f"{GROUP}/{configuration}" for configuration in CONFIGURATIONS}
    _, errors = await settle(api, [CaController(PLAN)], START + MINUTE)
    assert len(set(errors)) == len(CONFIGURATIONS)
    assert leaf(api, SERVING) == before
    assert set(api.secret(SERVING)) == data, "a server with --serving-ca would not be ready with another bundle"


@pytest.mark.parametrize("name", [CLIENT, SERVING])
async def test_early_loss_of_a_new_ca_keeps_the_cas_in_use_trusted(name: str) -> None:
    """A late reader presents the previous leaf for some more minutes."""
    api, now, ca = await make_managed_cluster(), START, CLIENT_CA if name == CLIENT else SERVING_CA
    old_leaf = leaf(api, name)
    api.change(ca, {"line.json": None})
    while leaf(api, name) == old_leaf:
        now += POLL
        await settle(api, [CaController(PLAN)], now)
    api.change(ca, {"line.json": None})
    await settle(api, [CaController(PLAN)], now + POLL)
    assert peers_verify(api)
    assert all(verifies(old_leaf, bundle) for bundle in bundles(api, name))
    await settle(api, [CaController(PLAN)], START + 15 * DAY)
    assert not any(verifies(old_leaf, bundle) for bundle in bundles(api, name)), "it has expired"


async def test_port_certificate_keeps_its_ca_trusted_after_repeated_ca_loss() -> None:
    api, now, tasks = await make_managed_cluster(), START, (CaController(PLAN), PortSwitch((443, 444)))
    await settle(api, tasks, now)
    port_certificate = api.secret(CLIENT)["first.pem"]
    api.unreadable.add(f"{GROUP}/{CONFIGURATIONS[2]}")  # so no port is switched
    for _ in range(4):
        api.change(CLIENT_CA, {"line.json": None})
        for _ in range(40):
            now += POLL
            await settle(api, tasks, now)
    assert api.secret(CLIENT)["first.pem"] == port_certificate
    assert verifies(x509.load_pem_x509_certificate(port_certificate), bundles(api, CLIENT)[0])


@pytest.mark.parametrize(
    ("name", "ca", "places"),
    [
        (SERVING, SERVING_CA, [f"{GROUP}/{configuration}" for configuration in CONFIGURATIONS]),
        (CLIENT, CLIENT_CA, [f"{SECRETS}/{SERVING}"]),
    ],
)
async def test_new_ca_takes_over_although_calls_fail_now_and_then(name: str, ca: str, places: list[str]) -> None:
    """Every half minute one of the places where a CA is trusted cannot be read."""
    api, now = await make_managed_cluster(), START
    before = leaf(api, name)
    api.change(ca, {"line.json": None})
    for tick in range(60):
        now += POLL
        api.unreadable = {places[tick // 3 % len(places)]} if tick % 3 == 1 else set()
        await settle(api, [CaController(PLAN)], now)
        assert peers_verify(api)
    assert leaf(api, name) != before


# --- names ---


@pytest.mark.parametrize("fault", ["unreadable", "no name"])
async def test_renewed_certificate_keeps_names_that_are_unreadable(fault: str) -> None:
    api = Objects()
    other_webhook = {
        "name": "b.podgate.io",
        "clientConfig": {"url": "https://podgate.example:8443/mutate", "caBundle": ""},
    }
    path = f"{GROUP}/{CONFIGURATIONS[0]}"
    configuration = api.read_stored(path)
    api.put(path, {**configuration, "webhooks": [other_webhook, *configuration["webhooks"]]})
    await settle(api, [CaController(PLAN)], START)
    before = leaf(api, SERVING)
    if fault == "unreadable":
        api.unreadable.add(path)
    else:
        invalid_webhook = {"name": "c.podgate.io", "clientConfig": {"url": "https:///mutate", "caBundle": ""}}
        configuration = api.read_stored(path)
        api.put(path, {**configuration, "webhooks": [invalid_webhook, *configuration["webhooks"]]})
    await settle(api, [CaController(PLAN)], START + 11 * DAY)
    after = leaf(api, SERVING)
    assert after != before
    assert x509.DNSName("podgate.example") in names(before)
    assert names(after) == names(before)


async def test_name_of_no_webhook_is_omitted_at_the_next_renewal() -> None:
    api = Objects()
    configuration = api.read_stored(f"{GROUP}/{CONFIGURATIONS[0]}")
    url = {"url": "https://podgate.example:8443/mutate", "caBundle": ""}
    api.put(
        f"{GROUP}/{CONFIGURATIONS[0]}", {**configuration, "webhooks": [{"name": "a.podgate.io", "clientConfig": url}]}
    )
    await settle(api, [CaController(PLAN)], START)
    assert x509.DNSName("podgate.example") in names(leaf(api, SERVING))
    api.put(f"{GROUP}/{CONFIGURATIONS[0]}", configuration)
    await settle(api, [CaController(PLAN)], START + 11 * DAY)
    assert names(leaf(api, SERVING)) == [*list_server_names(SERVICE_NAME)]


def names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


# --- random faults ---


@dataclass
class RecentState:
    """Recent leaves and bundles of a Secret, which a late reader may still use."""

    api: Objects
    name: str
    delay: timedelta
    states: list[tuple[datetime, x509.Certificate, frozenset[frozenset[x509.Certificate]]]] = field(
        default_factory=list
    )

    def check(self, now: datetime) -> None:
        """Check that every recent leaf verifies against every recent bundle."""
        current = leaf(self.api, self.name)
        assert current.not_valid_before_utc <= now < current.not_valid_after_utc
        self.states.append((now, current, frozenset(bundles(self.api, self.name))))
        first = max(at for at, (since, _, _) in enumerate(self.states) if since <= now - self.delay or at == 0)
        self.states = self.states[first:]
        leaves = {certificate for _, certificate, _ in self.states}
        recent_bundles = {bundle for _, _, state_bundles in self.states for bundle in state_bundles}
        assert all(verifies(certificate, bundle) for certificate in leaves for bundle in recent_bundles)


def inject_fault(api: Objects, random: Random) -> None:
    match random.randrange(4):
        case 0:
            with suppress(KeyError):  # it does not exist
                api.change(random.choice((SERVING_CA, CLIENT_CA)), {"line.json": None})
        case 1:
            random.choice((api.label, api.remove_label))(random.choice((SERVING, CLIENT)))
    api.unreadable |= {path for path in PATHS if random.random() < random.choice((0.1, 0.5))}


async def simulate(random: Random) -> None:
    """Adopt two Secrets, and rotate both CAs twice, with faults."""
    api, controller, now = manual_cluster(), CaController(SHORT), START
    recent_states = [RecentState(api, SERVING, SHORT.serving.settle), RecentState(api, CLIENT, SHORT.client.settle)]
    missed = 0
    for _ in range(60):
        now += random.choice((POLL, MINUTE, MINUTE, 6 * MINUTE, 60 * MINUTE, 120 * MINUTE))
        inject_fault(api, random)
        for _ in range(random.randrange(8)):
            await controller.reconcile(api, now)  # and is interrupted
        for recent_state in recent_states:
            recent_state.check(now)
        api.unreadable.clear()
        missed = missed + 1 if missed < 2 and random.random() < 0.3 else 0
        if not missed:
            for name in (SERVING, CLIENT):
                api.label(name)
            await settle(api, [controller], now)
            for recent_state in recent_states:
                recent_state.check(now)


@examples(25)
@given(seed=st.integers(0, 2**32))
def test_peers_verify_each_other_despite_unreadable_lost_or_late_secrets(seed: int) -> None:
    asyncio.run(simulate(Random(seed)))  # noqa: S311  not for secrets
