"""The audit policy of the API servers, and their logs as events of a history."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chaos.history import AuditEvent
from tests.cluster.components import write_json

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {
            "level": "RequestResponse",
            "resources": [{"group": "", "resources": ["pods", "pods/eviction", "pods/resize"]}],
        },
        {"level": "Request", "resources": [{"group": "", "resources": ["pods/status", "pods/binding", "bindings"]}]},
        {
            "level": "Request",
            "verbs": _WRITES,
            "resources": [{"group": "", "resources": ["configmaps"]}],
            "namespaces": ["podgate-system"],
        },
        {"level": "Request", "resources": [{"group": group} for group in ("apps", "batch", "policy")]},
        {"level": "Metadata", "resources": [{"group": "admissionregistration.k8s.io"}, {"group": "podgate.io"}]},
        {"level": "None"},
    ],
}
"""Objects of a Namespace and of the cluster that decide about Pods; no Secrets, tokens, Leases or Events."""
_MEGABYTES_MAX = 2000


def list_flags(folder: Path, api_server: str) -> list[str]:
    """Write the policy; return the flags by which an API server logs all requests that it lists."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = write_json(folder / "audit-policy.json", _POLICY)
    path = f"--audit-log-path={folder / f'{api_server}.audit'}"
    return [f"--audit-policy-file={policy}", path, f"--audit-log-maxsize={_MEGABYTES_MAX}"]


def read_events(folder: Path, api_servers: Iterable[str]) -> list[AuditEvent]:
    """Return the events of all API servers by arrival."""
    events = [event for name in api_servers for event in _read_log(folder / f"{name}.audit", name)]
    return sorted(events, key=lambda event: event.at)


def _read_log(path: Path, api_server: str) -> Iterator[AuditEvent]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                document = json.loads(line)
            except ValueError:
                continue  # the API server was killed while it wrote this line
            yield build_event(document, api_server)


def build_event(document: Mapping[str, Any], api_server: str) -> AuditEvent:
    reference, status = document.get("objectRef", {}), document.get("responseStatus", {})
    response = document.get("responseObject")
    name = reference.get("name") or (response or {}).get("metadata", {}).get("name", "")
    return AuditEvent(
        at=_parse_time(document["requestReceivedTimestamp"]),
        answered_at=_parse_time(document["stageTimestamp"]),
        part=api_server,
        audit_id=document["auditID"],
        verb=document["verb"],
        user=document.get("user", {}).get("username", ""),
        resource=reference.get("resource", ""),
        sub_resource=reference.get("subresource", ""),
        namespace=reference.get("namespace", ""),
        name=name,
        code=status.get("code", 0),
        message=status.get("message", ""),
        reason=status.get("reason", ""),
        uri=document.get("requestURI", ""),
        user_agent=document.get("userAgent", ""),
        stage=document["stage"],
        annotations=document.get("annotations", {}),
        request=document.get("requestObject"),
        response=response,
    )


def _parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
