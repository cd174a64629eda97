"""The policies of a run: services of every kind, with short windows, and changes that are rolled out in steps."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256

from tests.cluster.shares import build_shares

SERVICES = ("shop", "jobs", "gold", "bronze", "store", "spot", "risky", "open", "near")
"""Each has a namespace of its own."""
REPORTER = "prober"
_POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
rollout: {canary: {by: Workload, steps: [{percent: 50, for: 4s}]}, whenNoData: Advance}
nodes: {sources: [{requests: {}}]}
pools:
- {name: batch, windows: [{window: 10s, hard: {pods: BATCH}}], whenExceeded: Queue}
defaults:
  failureMode: Closed
services:
- name: shop
  match: {namespaces: [chaos-shop]}
  quota: {windows: [{window: 10s, hard: {pods: SHOP}}, {window: 60s, hard: {pods: 40, requests.cpu: "8"}}]}
- name: jobs
  match: {namespaces: [chaos-jobs]}
  quota:
    windows: [{window: 10s, hard: {pods: JOBS}}]
    whenExceeded: Queue
    queue: {maxWait: 1h, whenExpired: Keep, groups: {from: [Job]}}
- name: gold
  match: {namespaces: [chaos-gold]}
  slaClass: gold
  pool: batch
  quota: {whenExceeded: Queue, queue: {maxWait: 1h, whenExpired: Keep}}
- name: bronze
  match: {namespaces: [chaos-bronze]}
  slaClass: bronze
  pool: batch
  quota: {whenExceeded: Queue, queue: {maxWait: 1h, whenExpired: Keep}}
- name: store
  match: {namespaces: [chaos-store]}
  quota: {standing: {hard: {pods: 12, requests.cpu: "10"}, surge: 0}}
- name: spot
  match: {namespaces: [chaos-spot]}
  placement:
    shares: SHARES
- name: risky
  match: {namespaces: [chaos-risky]}
  quota: {windows: [{window: 10s, hard: {pods: 6}}]}
  breaker:
    outcomes: {source: Pushed, reporters: [prober]}
    errorRate: {percent: 50, interval: 1s, consecutive: 2, minimumOutcomes: 3}
    quotaExceeded: {count: 4, within: 10s, countBy: Request}
    openFor: OPEN_FOR
    halfOpen: {probes: 1, probeTimeout: 10s}
- name: open
  match: {namespaces: [chaos-open]}
  failureMode: Open
  quota: {windows: [{window: 10s, hard: {pods: 8}}], whenStoreUnavailable: Allow}
- name: near
  match: {namespaces: [chaos-near]}
  placement: {schedulerName: podgate-scheduler}
  scheduling: {hot: {cpu: 0.8}}
"""
_SETS: Sequence[Mapping[str, str]] = (
    {"BATCH": "10", "SHOP": "8", "JOBS": "8", "OPEN_FOR": "5s"},
    {"BATCH": "14", "SHOP": "12", "JOBS": "8", "OPEN_FOR": "5s"},
    {"BATCH": "10", "SHOP": "6", "JOBS": "10", "OPEN_FOR": "3s"},
)
"""The first one is in force at the beginning and in the end."""


def build_namespace(service: str) -> str:
    return f"chaos-{service}"


NAMESPACES = tuple(map(build_namespace, SERVICES))


def build_policies() -> list[str]:
    """Return all policies that a run may apply."""
    shares = json.dumps(build_shares(unschedulableFor="30s", openFor="10s"))
    policies = []
    for values in _SETS:
        text = _POLICY.replace("SHARES", shares)
        for name, value in values.items():
            text = text.replace(name, value)
        policies.append(text)
    return policies


def hash_policy(text: str) -> str:
    """Return the hash by which Podgate names a policy."""
    return sha256(text.encode()).hexdigest()[:16]
