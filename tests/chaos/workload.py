"""The workload of a run: does its acts at their times, whatever fails, and records each answer."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.chaos.acts import PlannedAct, Workload
from tests.chaos.api_calls import ApiCalls
from tests.chaos.objects import build_job, build_workload
from tests.chaos.outcome_reports import OutcomeReporter
from tests.chaos.policies import NAMESPACES

PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}
_CALLERS = 12
_REPORT_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_CONFIG_MAPS = "/api/v1/namespaces/podgate-system/configmaps"


@dataclass
class WorkloadRun:
    """`run` does the acts; `settle` then asks for what shall be there in the end until it is accepted."""

    calls: ApiCalls
    reporter: OutcomeReporter
    policies: Sequence[str]
    _is_over: threading.Event = field(default_factory=threading.Event)

    def run(self, acts: Sequence[PlannedAct], began: float) -> None:
        """Do all acts; return when the last one is answered, or has timed out."""
        with ThreadPoolExecutor(_CALLERS, "act") as callers:
            for act in acts:
                time.sleep(max(0.0, began + act.after - time.monotonic()))
                callers.submit(self._do, act)

    def settle(self, workload: Workload, timeout_seconds: float) -> list[str]:
        """Ask for the wished state; return what was not accepted in this time."""
        deadline = time.monotonic() + timeout_seconds
        wishes = {f"{kind} {space}/{name}": (kind, space, name) for kind, space, name in workload.sizes}
        pending: dict[str, Callable[[], bool]] = {
            text: lambda key=key: self._scale(*key, workload.sizes[key], create=True) for text, key in wishes.items()
        }
        pending |= {f"Node {name}": lambda name=name: self._cordon(name, is_on=False) for name in self._list_drained()}
        pending["policy"] = lambda: self._write_config_map("podgate-policy", "policy.yaml", self.policies[0])
        pending["overrides"] = lambda: self._write_config_map("podgate-overrides", "overrides.yaml", "[]")
        for act in workload.acts:
            if act.kind == "Job":
                pending[f"Job {act.namespace}/{act.name}"] = lambda act=act: self._has(act) or self._create(act)
        while pending and time.monotonic() < deadline:
            pending = {text: ask for text, ask in pending.items() if not ask()}
            if pending:
                time.sleep(_RETRY_SECONDS)
        return list(pending)

    def touch(self, kind: str, namespace: str, name: str) -> None:
        """Change a workload without effect, so that its controller looks at it now and not after its backoff."""
        path = f"/apis/apps/v1/namespaces/{namespace}/{PLURALS[kind]}/{name}"
        body = {"metadata": {"annotations": {"chaos/touched": f"{time.time():.0f}"}}}
        self.calls.ask("touch", kind, namespace, name, "PATCH", path, body, _MERGE)

    # --- acts ---

    def _do(self, act: PlannedAct) -> None:
        details = act.details
        match act.act:
            case "create":
                self._create(act)
            case "scale":
                self._scale(act.kind, act.namespace, act.name, details["replicas"])
            case "roll-out":
                template = {"metadata": {"annotations": {"chaos/revision": details["revision"]}}}
                self._patch(act, {"spec": {"template": template}})
            case "delete-pod" | "evict-pod" | "resize-pod":
                self._act_on_pod(act)
            case "drain":
                self._drain(act)
            case "report":
                self._report(act)
            case "override":
                until = datetime.now(UTC) + timedelta(seconds=details["seconds"])
                entry = {**details["entry"], "service": act.name, "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"}
                self._write_config_map(
                    "podgate-overrides", "overrides.yaml", json.dumps([{**entry, "reason": "chaos"}])
                )
            case "change-policy":
                self._write_config_map("podgate-policy", "policy.yaml", self.policies[details["number"]])

    def _create(self, act: PlannedAct) -> bool:
        """Create an object; True if it is there then."""
        details = act.details
        if act.kind == "Job":
            body = build_job(act.namespace, act.name, details["pods"], is_indexed=details["indexed"])
            path = f"/apis/batch/v1/namespaces/{act.namespace}/jobs"
        else:
            body = build_workload(act.kind, act.namespace, act.name, details["replicas"])
            path = f"/apis/apps/v1/namespaces/{act.namespace}/{PLURALS[act.kind]}"
        return self.calls.ask("create", act.kind, act.namespace, act.name, "POST", path, body) in {201, 409}

    def _has(self, act: PlannedAct) -> bool:
        """Whether a Job is there."""
        jobs = self.calls.list_items(f"/apis/batch/v1/namespaces/{act.namespace}/jobs")
        return any(job["metadata"]["name"] == act.name for job in jobs)

    def _scale(self, kind: str, namespace: str, name: str, replicas: int, *, create: bool = False) -> bool:
        path = f"/apis/apps/v1/namespaces/{namespace}/{PLURALS[kind]}/{name}"
        body = {"spec": {"replicas": replicas}}
        code = self.calls.ask("scale", kind, namespace, name, "PATCH", path, body, _MERGE, replicas=replicas)
        if code == 404 and create:
            return self._create(PlannedAct(0.0, "create", kind, namespace, name, {"replicas": replicas}))
        return code == 200

    def _patch(self, act: PlannedAct, body: Mapping[str, Any]) -> None:
        path = f"/apis/apps/v1/namespaces/{act.namespace}/{PLURALS[act.kind]}/{act.name}"
        self.calls.ask(act.act, act.kind, act.namespace, act.name, "PATCH", path, body, _STRATEGIC)

    def _act_on_pod(self, act: PlannedAct) -> None:
        pods = self.calls.list_pods(act.namespace, act.details["app"])
        if not pods:
            return
        name = pods[int(act.details["place"] * len(pods))]["metadata"]["name"]
        path = f"/api/v1/namespaces/{act.namespace}/pods/{name}"
        if act.act == "delete-pod":
            self.calls.ask(act.act, "Pod", act.namespace, name, "DELETE", path)
        elif act.act == "evict-pod":
            self._evict(act.namespace, name)
        else:
            cpu = act.details["cpu"]
            body = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            self.calls.ask(act.act, "Pod", act.namespace, name, "PATCH", f"{path}/resize", body, _STRATEGIC, cpu=cpu)

    def _evict(self, namespace: str, name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        self.calls.ask("evict-pod", "Pod", namespace, name, "POST", path, body)

    def _drain(self, act: PlannedAct) -> None:
        self._cordon(act.name, is_on=True)
        for namespace in NAMESPACES:
            for pod in self.calls.list_pods(namespace):
                if pod["spec"].get("nodeName") == act.name:
                    self._evict(namespace, pod["metadata"]["name"])
        time.sleep(act.details["seconds"])
        self._cordon(act.name, is_on=False)

    def _cordon(self, node: str, *, is_on: bool) -> bool:
        act, body = "cordon" if is_on else "uncordon", {"spec": {"unschedulable": is_on or None}}
        return self.calls.ask(act, "Node", "", node, "PATCH", f"/api/v1/nodes/{node}", body, _MERGE) == 200

    def _list_drained(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.calls.list_items("/api/v1/nodes")]

    def _report(self, act: PlannedAct) -> None:
        entry = {"service": act.name, "latency": 0.05}
        outcomes = [{**entry, "ok": False}] * act.details["failures"]
        outcomes += [{**entry, "ok": True}] * act.details["successes"]
        for _ in range(act.details["times"]):
            self.reporter.report(act.name, outcomes)
            time.sleep(_REPORT_SECONDS)

    def _write_config_map(self, name: str, key: str, text: str) -> bool:
        act = "override" if key == "overrides.yaml" else "change-policy"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "podgate-system"},
            "data": {key: text},
        }
        path = f"{_CONFIG_MAPS}/{name}?fieldManager=chaos&force=true"
        code = self.calls.ask(
            act, "ConfigMap", "podgate-system", name, "PATCH", path, body, "application/apply-patch+yaml"
        )
        return code in {200, 201}
