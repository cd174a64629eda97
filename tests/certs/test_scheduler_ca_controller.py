"""Certificates of the scheduler extender and of its kube-scheduler, over the years."""

from datetime import timedelta

import pytest
from cryptography import x509

from certs import CA_LIFETIME
from certs.cluster.scheduler_ca_controller import (
    CLIENT_BUNDLE,
    CLIENT_NAME,
    EXTENDER,
    EXTENDER_CA,
    SCHEDULER,
    SERVING_BUNDLE,
    SchedulerCaController,
    SchedulerCertificatePlan,
)
from certs.cluster.trust_domain import parse_certificates
from certs.inspection import is_signed_by
from certs.lifetimes import Lifetimes
from tests.certs.memory_objects import DAY, START, Objects, settle

SETTLE = timedelta(days=30)
PLAN = SchedulerCertificatePlan(
    Lifetimes.from_settle_max(CA_LIFETIME, 14 * DAY, SETTLE),
    Lifetimes.from_settle_max(365 * DAY, 14 * DAY, timedelta(minutes=5)),
)


def leaf(api: Objects, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(api.secret(name)["tls.crt"])


def is_trusted(one: x509.Certificate, bundle: bytes) -> bool:
    return any(is_signed_by(one, ca) for ca in parse_certificates(bundle))


def check_trust(api: Objects) -> None:
    """Check that each side trusts the other's certificate, by the bundle in its own Secret."""
    extender, scheduler = api.secret(EXTENDER), api.secret(SCHEDULER)
    assert is_trusted(leaf(api, EXTENDER), scheduler[SERVING_BUNDLE])
    assert is_trusted(leaf(api, SCHEDULER), extender[CLIENT_BUNDLE])
    assert not is_trusted(leaf(api, EXTENDER), extender[CLIENT_BUNDLE]), "the extender's own certificate calls nobody"


@pytest.mark.asyncio
async def test_both_secrets_are_complete_when_they_are_created() -> None:
    api = Objects()
    _, errors = await settle(api, [SchedulerCaController(PLAN)], START)
    assert errors == []
    for name in (EXTENDER, SCHEDULER):
        assert {*api.secret(name)} == {"tls.crt", "tls.key", SERVING_BUNDLE, CLIENT_BUNDLE}
    names = leaf(api, EXTENDER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "podgate-extender.podgate-system.svc" in names.get_values_for_type(x509.DNSName)
    assert f"CN={CLIENT_NAME}" in leaf(api, SCHEDULER).subject.rfc4514_string()
    check_trust(api)


@pytest.mark.asyncio
async def test_new_serving_ca_is_published_for_weeks_before_it_signs() -> None:
    """kube-scheduler reads it at its start only, so there must be time for one."""
    api, now = Objects(), START
    task = SchedulerCaController(PLAN)
    published = signing = None
    while now < START + CA_LIFETIME:
        await settle(api, [task], now)
        check_trust(api)
        trusted = parse_certificates(api.secret(SCHEDULER)[SERVING_BUNDLE])
        if published is None and len(trusted) > 1:
            published = now
            newest = max(trusted, key=lambda certificate: certificate.not_valid_before_utc)
        if published is not None and signing is None and is_signed_by(leaf(api, EXTENDER), newest):
            signing = now
            break
        now += 2 * DAY
    assert published is not None
    assert signing is not None
    assert signing - published >= SETTLE


@pytest.mark.asyncio
async def test_secret_of_somebody_else_is_left_alone() -> None:
    api = Objects()
    await settle(api, [SchedulerCaController(PLAN)], START)
    api.remove_label(EXTENDER_CA)
    before = leaf(api, EXTENDER)
    _, errors = await settle(api, [SchedulerCaController(PLAN)], START + 10 * DAY)
    assert any(EXTENDER_CA in error for error in errors)
    assert leaf(api, EXTENDER) == before
