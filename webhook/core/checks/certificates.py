"""Checks of certificates, tokens and clocks."""

from collections.abc import Iterator
from shlex import quote
from urllib.parse import urlsplit

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import CertificateFact, ClusterFacts
from webhook.core.checks.repair_command import add_store_command, build_install_command, describe_restore
from webhook.core.checks.repair_installation import manager_of
from webhook.core.checks.webhooks import webhooks_of
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.ways import CERT_MANAGER, FILES, OWN
from webhook.core.kubernetes.timestamps import format_rfc3339, parse_microseconds


def _explain_missing_secret(facts: ClusterFacts) -> str:
    return "" if any(facts.secrets.values()) else f"there is no Secret with certificates in {NAMESPACE}"


def _explain_missing_deployment(facts: ClusterFacts) -> str:
    return "" if facts.deployments else f"there is no Deployment in {NAMESPACE}"


SECTION = Section("certificates, tokens and clocks")
SERVING = "podgate-tls"
_BOOTSTRAP = "podgate certs bootstrap"
_PART_LEFT = 6
"""Certificates are renewed at two thirds of their lifetime: with a sixth left, that has failed."""
_SKEW_US, _SECOND_US = 30_000_000, 1_000_000
_SCHEDULER_SECRETS = ("podgate-extender-tls", "podgate-scheduler-tls")
_CALLER = "podgate-apiserver"


def _list_certificates(facts: ClusterFacts) -> Iterator[tuple[str, CertificateFact]]:
    for secret, found in facts.secrets.items():
        for certificate in found:
            yield secret, certificate


def _describe_renewal(facts: ClusterFacts, secret: str) -> tuple[str, str]:
    """Return how a certificate is renewed by whom manages it, in words and as a command."""
    manager = manager_of(facts)
    then = ", then podgate apiserver-files --once on each node" if secret == _CALLER else ""
    if manager == OWN:
        return f"the leader renews it: its log has why it did not (docs/certificates.md){then}", ""
    if manager == CERT_MANAGER:
        return f"cert-manager renews it: kubectl describe certificates -n {NAMESPACE}{then}", ""
    folder = "pki/scheduler" if secret in _SCHEDULER_SECRETS else "pki"
    rotated = f"podgate certs rotate --out {folder}"
    return f"renew it in the folder that has pki/ (docs/certificates.md){then}", add_store_command(
        facts, rotated, secret
    )


@SECTION.check("certificate-expired", "none has expired", "secrets", absence=_explain_missing_secret)
def certificate_expired(facts: ClusterFacts) -> Iterator[Observation]:
    for secret, certificate in _list_certificates(facts):
        if certificate.not_after_us <= facts.at_us:
            value = f"{format_rfc3339(certificate.not_after_us)}: EXPIRED"
            yield Observation(certificate.object, "notAfter", value, *_describe_renewal(facts, secret))


@SECTION.check(
    "certificate-expiring",
    "all are renewed in time",
    "secrets",
    severity=Severity.WARNING,
    absence=_explain_missing_secret,
)
def certificate_expiring(facts: ClusterFacts) -> Iterator[Observation]:
    for secret, certificate in _list_certificates(facts):
        left_us, life_us = certificate.not_after_us - facts.at_us, certificate.not_after_us - certificate.not_before_us
        if 0 < left_us < life_us // _PART_LEFT:
            value = f"{format_rfc3339(certificate.not_after_us)}: {left_us // 3_600_000_000} h left"
            yield Observation(certificate.object, "notAfter", value, *_describe_renewal(facts, secret))


@SECTION.check("serving-certificate-expired", "the server's certificates are valid", "status")
def serving_certificate_expired(facts: ClusterFacts) -> Iterator[Observation]:
    for certificate in facts.status["certificates"]:
        if parse_microseconds(certificate["notAfter"]) <= facts.at_us:
            value = f"{certificate['notAfter']}: EXPIRED"
            field = f"status.certificates[{certificate['name']}].notAfter"
            yield Observation(facts.server, field, value, *_describe_renewal(facts, SERVING))


@SECTION.check(
    "serving-certificate-names",
    "the serving certificate has the webhooks' host",
    "secrets",
    "webhooks",
    absence=_explain_missing_secret,
)
def serving_certificate_names(facts: ClusterFacts) -> Iterator[Observation]:
    hosts = dict.fromkeys(_find_host(webhook["clientConfig"]) for _, webhook in webhooks_of(facts))
    for certificate in facts.secrets.get(SERVING, ()):
        for host in hosts:
            if not any(_covers(name, host) for name in certificate.names):
                value = f"{', '.join(certificate.names) or 'none'}: not {host}"
                yield Observation(certificate.object, "subjectAltName", value, *_describe_issue(facts, host))


@SECTION.check(
    "secret-missing", "every mounted Secret exists", "secrets", "deployments", absence=_explain_missing_deployment
)
def secret_missing(facts: ClusterFacts) -> Iterator[Observation]:
    for deployment in facts.deployments:
        for volume in deployment.spec.template.spec.volumes or ():
            wanted = volume.get("secret") or {}
            name = wanted.get("secretName", "")
            if name.startswith("podgate-") and name not in facts.secrets and not wanted.get("optional"):
                place = f"Deployment {NAMESPACE}/{deployment.name}"
                command = build_install_command(facts)
                remedy = describe_restore(facts) if command else f"{_BOOTSTRAP}, or step 2 of manifests/README.md"
                yield Observation(place, f"volumes[{volume['name']}].secretName", f"{name}: absent", remedy, command)


@SECTION.check("clock-skew", "clocks agree within 30 s", severity=Severity.WARNING)
def clock_skew(facts: ClusterFacts) -> Iterator[Observation]:
    clocks = {"API server": facts.api_clock_us}
    if facts.status:
        clocks[facts.server] = parse_microseconds(facts.status["time"])
    for place, clock_us in clocks.items():
        if clock_us is not None and abs(clock_us - facts.at_us) > _SKEW_US:
            value = f"{(clock_us - facts.at_us) // _SECOND_US} s from this machine's"
            yield Observation(place, "clock", value, "run NTP: certificates and tokens are valid by the clock")


def _describe_issue(facts: ClusterFacts, host: str) -> tuple[str, str]:
    """Return how to get a certificate of a name, in words and as a command."""
    if manager_of(facts) != FILES:
        return _describe_renewal(facts, SERVING)
    command = f"podgate certs issue --out pki --server {quote(host)} --force"
    return "issue one with this name, in the folder that has pki/", add_store_command(facts, command, SERVING)


def _find_host(client: dict[str, dict[str, str]]) -> str:
    service = client.get("service")
    return (
        f"{service['name']}.{service['namespace']}.svc" if service else urlsplit(str(client.get("url"))).hostname or ""
    )


def _covers(name: str, host: str) -> bool:
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])
