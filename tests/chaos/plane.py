"""The control plane of a run: two API servers with audit logs, behind one address."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos.api_front import ApiFront
from tests.chaos.audit_policy import list_flags
from tests.chaos.links import Link
from tests.cluster.admission_configuration import Caller
from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.components import Ports, write_json
from tests.cluster.controlplane import ControlPlane

API_SERVERS = 2
_BUSY = ("--heartbeat-interval=250", "--election-timeout=2500")
"""Of several members of etcd, which elect no other leader on a busy machine."""
_NODE_LEASE_SECONDS = 10
"""After which another kwok keeps the Nodes."""


class ChaosPlane(ControlPlane):
    """Everything that uses an API server goes to a ready one through `front`, or through a link with its choice."""

    def __init__(self, callers: Mapping[str, Caller], loop: BackgroundLoop, etcds: Sequence[str]) -> None:
        super().__init__(callers=callers, api_servers=API_SERVERS, etcds=etcds)
        self.flags = {name: list_flags(self.audit_folder, name) for name in self.api_servers}
        if len(etcds) > 1:
            self.flags |= dict.fromkeys(etcds, _BUSY)
        self.front = ApiFront(loop, lambda: [api.port for api in self.apis.values()])
        self._link = Link("all>kube-apiserver", loop)
        self._port = self._link.open(self.front.choose)

    @property
    def audit_folder(self) -> Path:
        return self.folder / "audit"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def _grant_access(self, ports: Ports) -> None:
        super()._grant_access(ports)
        self.api = replace(self.api, port=self._port, _idle=[])
        self.front.watch(self.authority.certificate)

    def _command(self, name: str) -> Sequence[str | Path]:
        command = super()._command(name)
        if name == "kube-scheduler":  # another one serves the other names
            self._change("scheduler.json", lambda found: found | {"profiles": [{"schedulerName": "default-scheduler"}]})
        elif name == "kwok":
            options = {"nodeLeaseDurationSeconds": _NODE_LEASE_SECONDS}
            self._change("kwok.json", lambda found: found | {"options": found["options"] | options})
        return command

    def _change(self, file: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change a configuration that has been written."""
        path = self.folder / file
        write_json(path, change(json.loads(path.read_text())))

    def stop(self) -> None:
        super().stop()
        self.front.close()
        self._link.close()
