"""A generated day of traffic as a record, with a known truth: when which Pods were created and ended."""

import json
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DAY_SECONDS = 86_400
SINCE = "2026-11-24T00:00:00Z"
"""A Tuesday."""
REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
JOBS = "system:serviceaccount:kube-system:job-controller"
OUTLIER_AT = 14 * 3600 + 300
OUTLIER_PODS = 120
NIGHT_AT = 2 * 3600
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
- name: batch
  match: {namespaces: [batch]}
  quota: {windows: [{window: 10m, hard: {pods: 5000, memory: 1Ti}}], standing: {hard: {pods: 10}}}
- name: teams
  match: {namespaces: ["team-*"]}
  quota: {per: Namespace, windows: [{window: 1h, hard: {pods: 1}}]}
  modes: {quota: Audit}
- name: idle
  match: {namespaces: [idle]}
"""


@dataclass(frozen=True)
class CreatedPod:
    """One Pod of the day; times are in seconds of the day."""

    at: float
    ended: float
    uid: str
    namespace: str
    owner: str
    template: str = ""
    user: str = REPLICA_SETS
    requests: dict[str, str] = field(default_factory=lambda: {"cpu": "100m", "memory": "128Mi"})

    @property
    def event(self) -> dict[str, Any]:
        kind, name = self.owner.split("/")
        metadata: dict[str, Any] = {
            "generateName": f"{name}-",
            "labels": {"app": name, **({"pod-template-hash": self.template} if self.template else {})},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1" if kind == "ReplicaSet" else "batch/v1",
                    "kind": kind,
                    "name": name,
                    "uid": name,
                    "controller": True,
                }
            ],
        }
        container = {"name": "c", "resources": {"requests": self.requests}}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        return {"at": self.at, "pod": pod, "namespace": self.namespace, "uid": self.uid, "user": self.user}


def generate_day(seed: int = 7) -> list[CreatedPod]:
    """Return the Pods of one day: diurnal load, a nightly batch, two teams, and one burst by a load test."""
    chance = random.Random(seed)  # noqa: S311  a repeatable day
    pods: list[CreatedPod] = []
    at = 0.0
    while True:
        per_minute = 0.3 + 4 * max(0.0, math.sin(math.pi * (at / 3600 - 6) / 16))
        at += chance.expovariate(per_minute / 60)
        if at >= DAY_SECONDS:
            break
        web = ("shop", "ReplicaSet/web-5d9f", "5d9f")
        pods.append(CreatedPod(round(at, 3), at + chance.uniform(600, 7200), f"web-{len(pods)}", *web))
    for number in range(OUTLIER_PODS):
        moment = OUTLIER_AT + round(chance.uniform(0, 40), 3)
        pods.append(CreatedPod(moment, moment + 300, f"burst-{number}", "shop", "ReplicaSet/load-test-77aa", "77aa"))
    for number in range(60):
        moment = NIGHT_AT + round(chance.uniform(0, 180), 3)
        pods.append(
            CreatedPod(
                *(moment, moment + chance.uniform(600, 2400), f"report-{number}", "batch", "Job/report-29399160"),
                user=JOBS,
                requests={"cpu": "2", "memory": "4Gi"},
            )
        )
    for number in range(200):
        moment = round(chance.uniform(0, DAY_SECONDS - 1), 3)
        space = "team-a" if number % 4 else "team-b"
        pods.append(CreatedPod(moment, moment + 60, f"team-{number}", space, "ReplicaSet/app-1", ""))
    return sorted(pods, key=lambda pod: pod.at)


def encode_events(pods: Iterable[CreatedPod], *, with_ends: bool = True) -> Iterator[str]:
    """Yield the lines of a record, as a server writes it, with the ends of Pods."""
    yield json.dumps({"at": 0, "recorded": {"since": SINCE, "sampleEvery": 1}})
    yield json.dumps({"at": 0, "recorded": {"policyHash": "0123456789abcdef"}})
    events = [pod.event for pod in pods]
    if with_ends:
        events += [{"at": pod.ended, "deleted": pod.uid} for pod in pods if pod.ended < DAY_SECONDS]
    yield from map(json.dumps, sorted(events, key=lambda event: event["at"]))


def write_day(folder: Path, pods: Iterable[CreatedPod], *, with_ends: bool = True) -> tuple[Path, Path]:
    """Write record and policy; return their paths."""
    record, policy = folder / "events.jsonl", folder / "policy.yaml"
    record.write_text("\n".join(encode_events(pods, with_ends=with_ends)) + "\n")
    policy.write_text(POLICY)
    return record, policy


def find_true_peak(pods: Iterable[CreatedPod], seconds: float) -> int:
    """Return the largest number of Pods created in any period of this length."""
    moments = sorted(pod.at for pod in pods)
    largest = first = 0
    for last, at in enumerate(moments):
        while moments[first] <= at - seconds:
            first += 1
        largest = max(largest, last - first + 1)
    return largest


def find_most_live(pods: Iterable[CreatedPod]) -> int:
    """Return the largest number of Pods that lived at one time."""
    changes = sorted((at, sign) for pod in pods for at, sign in ((pod.at, 1), (pod.ended, -1)))
    largest = live = 0
    for _, sign in changes:
        live += sign
        largest = max(largest, live)
    return largest
