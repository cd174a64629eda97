"""Ways into a running cluster: kubectl, bare requests, and a kubeconfig for whomever a test wants to be."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.cluster.certificates import ClusterAuthority
from tests.cluster.components import Ports, kubeconfig, write_json


class Access:
    """What a ControlPlane is to those who use it; it is there from the moment the ports are known."""

    folder: Path
    ports: Ports
    authority: ClusterAuthority
    api: Api
    """Bare requests, as the administrator."""
    kubeconfig: Path
    """The administrator's: O=system:masters."""
    _kubectl: Path

    def _let_in(self, ports: Ports) -> None:
        self.ports = ports
        certificate, key = self.authority.user("kubernetes-admin", "system:masters")
        self.api = Api.create(ports.apiserver, self.authority.certificate, certificate, key)
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        document = kubeconfig(self.server, self.authority.certificate, user)
        self.kubeconfig = write_json(self.folder / "admin.kubeconfig", document)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.apiserver}"

    def kubeconfig_for(self, name: str, *groups: str, token: str | None = None, server: str | None = None) -> Path:
        """Return a kubeconfig of a user: by a certificate (CN and O), or by a bearer token if one is given.

        `server` is for whoever is to come through an entrance in front of the API server.
        """
        if token is None:
            certificate, key = self.authority.user(name, *groups)
            user = {"client-certificate": str(certificate), "client-key": str(key)}
        else:
            user = {"token": token}
        parts = (name, *groups, "token" if token else "", (server or "").rpartition(":")[2])
        stem = "-".join(part for part in parts if part).replace(":", "-").replace("/", "-")
        path = self.folder / f"{stem}.kubeconfig"
        return write_json(path, kubeconfig(server or self.server, self.authority.certificate, user))

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - as subprocess.run calls it
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, or as whose kubeconfig is given."""
        own = {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.folder), "PATH": os.defpath}
        done = subprocess.run(
            [self._kubectl, *arguments], input=input, env=own, check=False, capture_output=True, text=True
        )
        said = f"kubectl {' '.join(arguments)} exited with {done.returncode}: {done.stderr}{done.stdout}"
        assert done.returncode == 0 or not check, said
        return done

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects as the administrator."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(everything))
