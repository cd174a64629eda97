"""The policy of the light stage: short windows that are always full, and every rule for a store that is away."""

HASH = "light"
POOL = "shared"
REPORTER = "edge"

POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {{name: {POOL}, windows: [{{window: 2s, hard: {{pods: 12}}}}]}}
services:
- name: local
  failureMode: Closed
  match: {{namespaces: [local]}}
  placement: {{schedulerName: podgate-scheduler}}
  quota: {{windows: [{{window: 2s, hard: {{pods: 10}}}}, {{window: 1h, hard: {{pods: 100000}}}}]}}
- name: deny
  failureMode: Closed
  match: {{namespaces: [deny]}}
  quota: {{windows: [{{window: 2s, hard: {{pods: 8}}}}], whenStoreUnavailable: Deny}}
- name: allow
  failureMode: Open
  match: {{namespaces: [allow]}}
  quota: {{windows: [{{window: 3s, hard: {{pods: 9}}}}], whenStoreUnavailable: Allow}}
- name: sized
  failureMode: Closed
  match: {{namespaces: [sized]}}
  quota: {{windows: [{{window: 2s, hard: {{requests.cpu: "4"}}}}]}}
- name: member-a
  failureMode: Closed
  match: {{namespaces: [member-a]}}
  pool: {POOL}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}]}}
- name: member-b
  failureMode: Closed
  match: {{namespaces: [member-b]}}
  pool: {POOL}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}]}}
- name: apart
  failureMode: Closed
  match: {{namespaces: [apart-x, apart-y]}}
  quota: {{per: Namespace, windows: [{{window: 2s, hard: {{pods: 5}}}}]}}
- name: audited
  match: {{namespaces: [audited]}}
  modes: {{quota: Audit}}
  quota: {{windows: [{{window: 2s, hard: {{pods: 4}}}}]}}
- name: api
  failureMode: Closed
  match: {{namespaces: [api]}}
  breaker:
    outcomes: {{source: Pushed, reporters: [{REPORTER}]}}
    errorRate: {{percent: 95, interval: 400ms, consecutive: 2, minimumOutcomes: 2}}
    openFor: 1s
    halfOpen: {{probes: 2, probeTimeout: 4s}}
- name: noisy
  failureMode: Closed
  match: {{namespaces: [noisy]}}
  quota: {{windows: [{{window: 1s, hard: {{pods: 2}}}}]}}
  breaker:
    quotaExceeded: {{count: 5, within: 2s, countBy: Request}}
    openFor: 2500ms
    halfOpen: {{probes: 1, probeTimeout: 2s}}
"""
NAMESPACES = (
    *("local", "deny", "allow", "sized", "member-a", "member-b", "apart-x", "apart-y"),
    *("audited", "api", "noisy"),
)
