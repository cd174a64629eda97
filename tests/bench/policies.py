"""Policies of benchmarks: services with room for every Pod, with a full quota and with an open breaker."""

_PLACEMENT = """\
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [zone-b, zone-g]}]
    tolerations: [{key: dedicated, operator: Equal, value: payments, effect: NoSchedule}]
"""
_SHARES = """\
    shares:
      base: {variant: on-demand, pods: 2}
      variants:
      - {name: spot, weight: 4, nodeSelector: {capacity-type: spot}}
      - {name: on-demand, weight: 1, nodeSelector: {capacity-type: on-demand}}
"""
_PLENTY = """  quota: {windows: [{window: 1h, hard: {pods: 100000000, cpu: "100000000"}}]}"""
_ONE_POD = """  quota: {windows: [{window: 1h, hard: {pods: 1, cpu: "100000000"}}]}"""
_BREAKER = "  breaker: {quotaExceeded: {count: 10, within: 1m}}"
_OPEN = f"""\
- name: open
  match: {{namespaces: [open]}}
{_PLACEMENT}
{_ONE_POD}
  breaker: {{quotaExceeded: {{count: 1, within: 1m}}, openFor: 24h}}
"""

POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {{namespaces: [payments]}}
{_PLACEMENT}
{_PLENTY}
{_BREAKER}
- name: exhausted
  match: {{namespaces: [exhausted]}}
{_PLACEMENT}
{_ONE_POD}
{_OPEN}"""
ADMITTED, EXHAUSTED, OPEN = "payment-api", "exhausted", "open"
"""Services of the policy. The last two admit one Pod; later Pods are refused by the quota, or by an open breaker."""
UNMATCHED = "unmatched"
"""A namespace that no service matches."""

DIVIDED = "divided"
SHARES = f"""\
{POLICY.partition("- name: exhausted")[0]}- name: {DIVIDED}
  match: {{namespaces: [{DIVIDED}]}}
{_PLACEMENT}{_SHARES}{_PLENTY}
{_BREAKER}
"""
"""ADMITTED, and the same service with shares."""


def services_of(count: int) -> str:
    """Return a policy with this many services, s0 and so on; the namespace of each has its name."""
    head, _, _ = POLICY.partition("- name:")
    return head + "".join(
        f"- name: s{number}\n  match: {{namespaces: [s{number}]}}\n{_PLACEMENT}{_PLENTY}\n{_BREAKER}\n"
        for number in range(count)
    )


def share_defaults(count: int, tolerated: str = "payments", changed: int | None = None) -> bytes:
    """Return a policy of services that have placement and breaker by `defaults`, as one of thousands must.

    `tolerated`: a value of `defaults`. `changed`: the number of a service with another class than the others.
    """
    head, _, _ = POLICY.partition("services:")
    services = "".join(
        f"- name: s{number}\n  slaClass: {'silver' if number == changed else 'gold'}\n"
        f"  match: {{namespaces: [s{number}]}}\n"
        f'  quota: {{windows: [{{window: 1h, hard: {{pods: {number}, cpu: "{number}"}}}}]}}\n'
        for number in range(count)
    )
    placement = _PLACEMENT.replace("payments", tolerated)
    return f"{head}defaults:\n{placement}{_BREAKER}\nservices:\n{services}".encode()


def windows_of(count: int) -> str:
    """Return a policy with one service, ADMITTED, whose quota has this many windows."""
    head, _, _ = POLICY.partition("- name:")
    hard = 'hard: {pods: 100000000, cpu: "100000000"}'
    windows = ", ".join(f"{{window: {number + 1}h, {hard}}}" for number in range(count))
    match = "match: {namespaces: [payments]}"
    return f"{head}- name: {ADMITTED}\n  {match}\n{_PLACEMENT}  quota: {{windows: [{windows}]}}\n{_BREAKER}\n"


def make_refusal_policy(count: int) -> str:
    """Return a policy with one service, EXHAUSTED, whose breaker opens after refusals of this many controllers."""
    head, _, _ = POLICY.partition("- name:")
    breaker = f"  breaker: {{quotaExceeded: {{count: {count}, within: 1h}}}}"
    match = f"match: {{namespaces: [{EXHAUSTED}]}}"
    return f"{head}- name: {EXHAUSTED}\n  {match}\n{_PLACEMENT}{_ONE_POD}\n{breaker}\n"


BREAKERS = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: unbroken
  match: {{namespaces: [unbroken]}}
{_PLACEMENT}
{_PLENTY}
- name: closed
  match: {{namespaces: [closed]}}
{_PLACEMENT}
{_PLENTY}
  breaker:
    outcomes: {{source: Pushed, reporters: [gateway]}}
    errorRate: {{}}
    latency: {{}}
    quotaExceeded: {{}}
{_OPEN}"""
UNBROKEN, CLOSED = "unbroken", "closed"
"""Further services of BREAKERS: without a breaker, and with a closed one. The second Pod of OPEN trips its breaker."""
