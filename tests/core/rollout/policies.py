"""Policies with counters, generated, and requests for the tests of rollouts."""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.reviewing import body, pod, policy_of
from webhook.core.admission.review import Request, decode
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import compose
from webhook.core.rollout.selection import Reach

CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
NAMES = tuple("abcdef")
HASHES = ("0" * 16, "1" * 16)


def write_service(name: str, hard: int, pool: str, guaranteed: int, breaker: str, sla_class: str, disk: str) -> str:
    windows = "{{windows: [{{window: 1m, hard: {{pods: {}}}}}]}}, "
    quota = f"quota: {windows.format(hard)}" if hard else ""
    shared = f"pool: {pool}, " if pool else ""
    shared += f"guaranteed: {windows.format(guaranteed)}" if guaranteed else ""
    trips = f"breaker: {{quotaExceeded: {{}}}}, modes: {{breaker: {breaker}}}, " if breaker else ""
    return (
        f"- {{name: {name}, match: {{namespaces: [{name}]}}, {quota}{shared}{trips}slaClass: {sla_class}, "
        f"placement: {{nodeSelector: {{disk: {disk}}}}}}}\n"
    )


@st.composite
def policies(draw: st.DrawFn) -> LoadedPolicy:
    """Draw a policy with some services, pools, guarantees, SLA classes, breakers and a guard."""
    pools = {name: draw(st.integers(5, 8)) for name in ("p", "q")}
    rooms = {**pools, "": 0}

    def draw_counted() -> tuple[int, str, int]:
        hard, pool = draw(st.integers(0, 3)), draw(st.sampled_from(list(rooms)))
        guaranteed = draw(st.integers(0, min(rooms[pool], hard or rooms[pool])))
        rooms[pool] -= guaranteed
        return hard, pool, guaranteed

    drawn = {
        name: (
            *draw_counted(),
            draw(st.sampled_from(["", "Enforce", "Audit"])),
            draw(st.sampled_from(["gold", "silver", "bronze"])),
            draw(st.sampled_from(["ssd", "hdd"])),
        )
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    }
    used = sorted({pool for _, pool, *_ in drawn.values() if pool})
    limits = ", ".join(f"{{name: {pool}, windows: [{{window: 1m, hard: {{pods: {pools[pool]}}}}}]}}" for pool in used)
    guard = draw(st.sampled_from(["", "breakerGuard: {maxOpenPercent: 50}\n", "breakerGuard: {maxOpenPercent: 100}\n"]))
    head = guard + (f"pools: [{limits}]\n" if used else "")
    return policy_of("".join(write_service(name, *fields) for name, fields in drawn.items()), head)


def build_request(
    namespace: str = "a", replica_set: str = "web-5d9c7b6f4", *, user: str = CONTROLLER, **more: Any
) -> Request:
    """Return the request of a ReplicaSet's controller for a Pod of a Deployment."""
    made = pod()
    hash_label = replica_set.rpartition("-")[2]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": "u", "controller": True}
    made["metadata"] |= {
        "namespace": namespace,
        "labels": {"pod-template-hash": hash_label},
        "ownerReferences": [reference],
    }
    return decode(body(namespace=namespace, object=made, userInfo={"username": user}, **more))


def write_divided(*variants: str, open_for: str = "10m", service: str = "a", namespace: str = "a") -> str:
    """Return a service that divides its Pods equally."""
    listed = ", ".join(f"{{name: {name}, weight: 1, nodeSelector: {{kind: {name}}}}}" for name in variants)
    shares = f"{{unschedulableFor: 60s, openFor: {open_for}, variants: [{listed}]}}"
    return f"- {{name: {service}, match: {{namespaces: [{namespace}]}}, placement: {{shares: {shares}}}}}\n"


def build_canary(stable: str, candidate: str) -> BasePolicy:
    """Return two policies as they are in force in a canary."""
    old, new = replace(policy_of(stable), hash=HASHES[0]), replace(policy_of(candidate), hash=HASHES[1])
    reach = Reach(CanaryBy.WORKLOAD, percent=50)
    composed = compose(old, new, reach)
    return pair(old.policy, new.policy, reach)(CompiledPolicy(composed.base), CompiledPolicy(composed.canary))
