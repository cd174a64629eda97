"""The end of a history: objects, status pages, metrics and explanations at rest, and the logs of all parts."""

import json
import random
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chaos.api_calls import ApiCalls
from tests.chaos.forms import CONTROLLERS, PODGATE, SERVERS
from tests.chaos.history import End, Transition
from tests.chaos.lab import DECISIONS, PLAIN, Lab
from tests.chaos.policies import NAMESPACES
from tests.chaos.rest import Found
from tests.cli.command_runner import run_installed

_SAMPLE = 6
_MESSAGES = ("breaker transition", "breaker trip suppressed", "breaker probe expired")
_STATUSES = "/apis/podgate.io/v1alpha1/servicestatuses"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/podgate-system/leases"


def collect_end(lab: Lab, calls: ApiCalls, found: Found, waited_seconds: float, seed: int) -> End:
    """Ask everything for what it says at rest."""
    events = [event for space in NAMESPACES for event in calls.list_items(f"/api/v1/namespaces/{space}/events")]
    return End(
        at=time.time(),
        rested=not found.missing,
        waited_seconds=round(waited_seconds, 1),
        missing=found.missing,
        workloads=[_strip(each) for each in found.workloads],
        pods=[_strip(each) for each in found.pods],
        statuses={name: lab.read_status(name) for name in (*SERVERS, *CONTROLLERS)},
        metrics={name: _read_metrics(lab, name) for name in PODGATE},
        queue=_read_queue(lab),
        explanations=_explain_sample(lab, found, seed),
        service_statuses=[_strip(each) for each in calls.list_items(_STATUSES)],
        events=[_strip(event) for event in events],
        leases=[_strip(lease) for lease in calls.list_items(_LEASES)],
    )


def _strip(document: dict[str, Any]) -> dict[str, Any]:
    document.get("metadata", {}).pop("managedFields", None)
    return document


def _read_metrics(lab: Lab, name: str) -> str:
    try:
        return lab.read(name, "/metrics").decode()
    except OSError as error:
        return f"# {error}\n"


def _read_queue(lab: Lab) -> Any:
    """Return `podgate queue` of the controller that has one: the leader."""
    for name in CONTROLLERS:
        url = f"http://127.0.0.1:{lab.addresses[name][PLAIN]}"
        done = run_installed("queue", "--server", url, "-o", "json")
        if done.code == 0:
            return json.loads(done.out)
    return None


def _explain_sample(lab: Lab, found: Found, seed: int) -> Mapping[str, Mapping[str, Any]]:
    """Explain some workloads and Pods, which the seed chooses."""
    chosen = random.Random(f"{seed} explain")  # noqa: S311  the same sample again
    objects = sorted(
        (each.get("kind", "Pod"), each["metadata"]["namespace"], each["metadata"]["name"])
        for each in (*found.workloads, *found.pods)
    )
    decisions = f"http://127.0.0.1:{lab.addresses[SERVERS[0]][DECISIONS]}"
    explained = {}
    for kind, namespace, name in chosen.sample(objects, min(_SAMPLE, len(objects))):
        where = ("-n", namespace, "--kubeconfig", lab.plane.kubeconfig, "--server", decisions)
        done = run_installed("explain", kind.lower(), name, *where, "-o", "json")
        page = json.loads(done.out) if done.out.startswith("{") else {"code": done.code, "error": done.err}
        explained[f"{kind}/{namespace}/{name}"] = page
    return explained


def read_logs(lab: Lab) -> dict[str, str]:
    """Return the whole log of each part."""
    logs = {}
    for name in lab.parts:
        path = lab.plane.folder / f"{name}.log"
        if path.exists():
            logs[name] = path.read_text(errors="replace")
    servers = dict(zip(lab.form.stores, lab.redis.servers, strict=True))
    servers |= dict(zip(lab.form.sentinels, lab.redis.sentinels, strict=True))
    for name, server in servers.items():
        paths = sorted(Path(server.folder).glob(f"{server.program.name}-*.log"), key=lambda path: path.stat().st_mtime)
        logs[name] = "".join(path.read_text(errors="replace") for path in paths)
    return logs


def read_transitions(logs: Mapping[str, str]) -> list[Transition]:
    """Return the moves of breakers that the parts have logged, by their clocks."""
    moves = [move for part, text in logs.items() for move in _find_transitions(part, text)]
    return sorted(moves, key=lambda move: move.at)


def _find_transitions(part: str, text: str) -> Iterator[Transition]:
    for line in text.splitlines():
        if not line.startswith('{"time"') or '"breaker ' not in line:
            continue
        fields = json.loads(line)
        if fields["msg"] in _MESSAGES:
            yield Transition(
                at=datetime.fromisoformat(fields["time"]).timestamp(),
                part=part,
                message=fields["msg"],
                service=fields["service"],
                variant=fields.get("variant", ""),
                old=fields["old"],
                new=fields["new"],
                reason=fields.get("reason", ""),
                generation=fields.get("generation", 0),
            )
