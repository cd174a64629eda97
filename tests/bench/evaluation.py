"""Cost of a decision compared with the typed decode of its Pod: both halves of a large one, in turns.

The Pod has 60 containers, each with amounts of its own, none as the policy wants them before the rewrite; the policy
uses most fields of placement, and resources.
"""

import statistics
import time
from collections.abc import Callable

import jsonpatch
import msgspec

from webhook.core.admission.mutation import rewrite
from webhook.core.admission.validation import check
from webhook.core.document import Purpose, load
from webhook.core.kubernetes.pod import Pod

POD_BYTES = 65_000
CONTAINERS = 60
REPEATS = 50
_HASH = "0" * 16

POLICY = b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  placement:
    schedulerName: podgate-scheduler
    nodeSelector: {disk-type: ssd}
    topology:
    - {level: Region, in: [region-1]}
    - {level: Zone, in: [zone-b, zone-g], preferredWeight: 50}
    affinity:
      podAntiAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
        - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: batch}}}
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
    tolerations: [{key: dedicated, operator: Equal, value: payments, effect: NoSchedule}]
    priorityClassName: payments-high
  resources:
    container: {defaultRequest: {cpu: 100m}, default: {memory: 256Mi}, min: {cpu: 10m}, max: {cpu: "8"}}
    pod: {max: {memory: 640Gi}}
"""


def large_pod() -> dict[str, object]:
    """Return a Pod whose terms are its own, as its user writes it."""
    own = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b"]}
    containers = [
        {
            "name": f"c{number}",
            "image": f"registry.example/payments/worker-{number}:1.4.2",
            "resources": {"requests": {"cpu": f"{250 + number}m", "memory": f"{256 + number}Mi"}},
            "env": [{"name": f"SETTING_{name}", "value": "x" * 40} for name in range(12)],
        }
        for number in range(CONTAINERS)
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [own]}]}
    pod: dict[str, object] = {
        "metadata": {"generateName": "payment-api-", "namespace": "payments", "labels": {"app": "payment-api"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "containers": containers,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        },
    }
    padding = "x" * max(0, POD_BYTES - len(msgspec.json.encode(pod)))
    return {**pod, "status": {"message": padding}}


def measure(rounds: int) -> list[str]:
    """Return a line for each half: what decode and decision cost, in decodes."""
    service = load(POLICY, Purpose.LINT).policy.policy.services[0]
    decoder = msgspec.json.Decoder(Pod)
    before = msgspec.json.encode(large_pod())
    patch = msgspec.to_builtins(rewrite(decoder.decode(before), service, _HASH))
    after = msgspec.json.encode(jsonpatch.apply_patch(large_pod(), patch))
    if check(decoder.decode(after), service, hash_known=True):
        raise SystemExit("error: the rewritten Pod does not fulfil the policy")
    lines = [f"a Pod of {len(before)} bytes and {CONTAINERS} containers, in typed decodes of it, {rounds} rounds"]
    lines.append(_line("decode and rewrite", before, lambda pod: rewrite(pod, service, _HASH), rounds))
    lines.append(_line("decode and check", after, lambda pod: check(pod, service, hash_known=True), rounds))
    return lines


def _line(name: str, body: bytes, evaluate: Callable[[Pod], object], rounds: int) -> str:
    decoder = msgspec.json.Decoder(Pod)
    ratios = [
        _took(lambda: evaluate(decoder.decode(body))) / _took(lambda: decoder.decode(body)) for _ in range(rounds + 2)
    ][2:]
    return f"{name:32} {statistics.median(ratios):>7.2f}  (from {min(ratios):.2f} to {max(ratios):.2f})"


def _took(work: Callable[[], object]) -> int:
    started = time.process_time_ns()
    for _ in range(REPEATS):
        work()
    return time.process_time_ns() - started
