"""A policy with comments, records of denials, and ports that have them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.console.policies import PreparedPolicies
from tests.harness.console import NOW, PreparedPort, make_ports, service
from webhook.console.interface.document_reader import ConsolePorts
from webhook.core.admission.decision import Verdict
from webhook.core.document.loading import compute_hash
from webhook.core.rollout.differences import Difference
from webhook.replay.impact import ImpactReport, PodImpact, ServiceImpact

POLICY = b"""\
# Owned by team platform.
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
# Money first.
- name: payments   # PCI
  match: {namespaces: [payments]}
  modes: {quota: Enforce, breaker: Audit}
  quota:
    windows:
    # the burst
    - {window: 10s, hard: {pods: 20}}
    - {window: 1h, hard: {pods: 400}}   # the hour
- name: checkout
  match: {namespaces: [shop], podSelector: {matchLabels: {app: checkout}}}
  placement:
    topology:
    - {level: Region, in: [eu-west]}
    - {level: Zone, in: [eu-west-a, eu-west-b], preferredWeight: 50}
- name: shop
  match: {namespaces: [shop, "shop-*"]}
"""
SHOP = ImpactReport(
    "a",
    "b",
    120,
    {},
    (
        ServiceImpact(
            "shop",
            40,
            0,
            7,
            {Difference.DENIED: 7},
            (PodImpact("shop/web-1", (Difference.DENIED,), "Admit", "Deny: QuotaExceeded: <b>full</b>"),),
        ),
        ServiceImpact("payments", 80, 2, 2, {}, ()),
    ),
    "2026-12-01T03:00:00Z",
    "2026-12-01T04:00:00Z",
)


def stopped(number: int, code: str, name: str = "web-1", **fields: Any) -> dict[str, Any]:
    at = datetime(2026, 12, 1, 3, 59, 60 - number, tzinfo=UTC)
    of = {"id": f"r{number}", "at": at, "namespace": "shop", "name": name, "service": "shop", "codes": [code]}
    return {**of, "decision": Verdict.DENY, **fields}


DENIED = [
    stopped(1, "QuotaExceeded"),
    stopped(2, "QuotaExceeded", "web-2"),
    stopped(3, "BreakerOpen", "<b>web</b>"),
    stopped(4, "PlacementUnfulfilled", dryRun=True),
    stopped(5, "QuotaExceeded", "web-3"),
    stopped(6, "QuotaExceeded", "web-4"),
]


def make_pipeline_ports(policies: PreparedPolicies | None = None, document: bytes = POLICY) -> ConsolePorts:
    """Return ports of a server with a policy; without `policies` nothing can be arranged."""
    policy_hash = compute_hash(document)
    line = {"source": "policy.yaml", "hash": policy_hash, "loadedAt": NOW, "errors": []}
    ports = make_ports(service("web"), denied=DENIED, policy=line)
    assert isinstance(ports.decisions, PreparedPort)
    ports.decisions.answers[f"/api/v1/policies/{policy_hash}"] = document
    return replace(ports, policies=policies)
