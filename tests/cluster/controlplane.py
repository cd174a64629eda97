"""Control plane on loopback: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok."""

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from tests.cluster import components
from tests.cluster.admission_configuration import Caller, admission_configuration
from tests.cluster.api import Api
from tests.cluster.binaries import Binaries, binaries
from tests.cluster.certificates import ClusterAuthority
from tests.cluster.components import EtcdMember, Ports
from tests.cluster.kubectl import Access
from tests.cluster.kwok import KWOK_OBJECTS, is_usable
from tests.cluster.load_balancer import LoadBalancer, LoadBalancers
from tests.cluster.processes import ComponentError, Processes, find_free_ports

COMPONENTS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")
API_ALONE = COMPONENTS[:2]
"""The components that store objects only: Pods stay as they were created."""
FEW_COLLECTIONS = {"GOGC": "400"}
"""Fewer collections of garbage: a start of kube-apiserver takes 1.2 s of CPU instead of 1.6, and 110 MB more memory."""
_API_SERVER, _CONTROLLERS = "kube-apiserver", "kube-controller-manager"
_WORKLOADS = (
    *(("apis/batch/v1", kind) for kind in ("cronjobs", "jobs")),
    *(("apis/apps/v1", kind) for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")),
    ("api/v1", "replicationcontrollers"),
)
_TIMEOUT_SECONDS = 300.0
_PROBE_SECONDS = 5.0
_POLL_SECONDS, _POLL_SECONDS_MAX = 0.05, 0.5
"""Intervals between two polls. They grow in a long wait: a poll may cost a review of a Pod, and so 20 ms of CPU."""
_STARTS_MAX = 3
_PORT_TAKEN = "address already in use"


class ControlPlane(Access):
    """A cluster with simulated Nodes, and a load balancer for each of `callers`.

    The API server calls a webhook as the caller whose load balancer it uses (`plane.load_balancers["good"].port`).
    `admission` is another AdmissionConfiguration instead of `callers`. `folder` is deleted at the end.
    `components` may be `API_ALONE`, which needs a third of the memory. With `has_egress_proxy` the API server reaches
    Pods and Services through the proxy at `egress_socket` (connect_proxy.py). With `has_metrics` kwok serves the
    kubelets' resource metrics at `kubelet_port`, and the API server may aggregate other API servers.
    `flags` are further ones of each component. With `api_servers` above 1 there are further ones on the same etcd:
    kube-apiserver-2 and so on, each of which has a client in `apis`; all else uses the first one, unless a subclass has
    another `server`. With more than one of `etcds` etcd has so many members.
    """

    def __init__(  # noqa: PLR0913  the parts of a cluster
        self,
        callers: Mapping[str, Caller] | None = None,
        *,
        admission: Path | None = None,
        folder: Path | None = None,
        components: Sequence[str] = COMPONENTS,
        environment: Mapping[str, str] = FEW_COLLECTIONS,
        has_egress_proxy: bool = False,
        has_metrics: bool = False,
        flags: Mapping[str, Sequence[str]] | None = None,
        api_servers: int = 1,
        etcds: Sequence[str] = ("etcd",),
    ) -> None:
        further = [f"{_API_SERVER}-{number}" for number in range(2, api_servers + 1)]
        self.etcds = etcds
        self.components = (*etcds, _API_SERVER, *further, *components[len(API_ALONE) :])
        self.api_servers: Sequence[str] = (_API_SERVER, *further)
        self.apis: dict[str, Api] = {}
        self.environment = environment
        self.admission = admission
        self.callers = callers or {}
        self.flags = flags or {}
        self.load_balancers: Mapping[str, LoadBalancer] = {}
        self.folder = folder or Path(tempfile.gettempdir()) / f"podgate-controlplane-{secrets.token_hex(4)}"
        self.egress_socket = self.folder / "egress.sock" if has_egress_proxy else None
        self.kubelet_port = find_free_ports(1)[0] if has_metrics else 0
        self._binaries: Binaries = binaries()
        self._kubectl = self._binaries.kubectl
        self._balancers: LoadBalancers | None = None
        self._processes: Processes | None = None

    # --- life ---

    def start(self) -> Self:
        """Start everything and wait until it is ready."""
        self._processes = Processes(self.folder, self.environment)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.authority = ClusterAuthority.create(self.folder / "pki")
            self._open_load_balancers()
            self._start_on_free_ports()
            if "kwok" in self.components:
                self.apply(*KWOK_OBJECTS)
            for name in self.components:
                if name not in self.processes.names:
                    self.start_component(name)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all components and delete the folder."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        for api in ([self.api] if hasattr(self, "api") else []) + [*self.apis.values()]:  # none if the start failed
            api.close()
        if self._balancers is not None:
            self._balancers.close()
            self._balancers = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _open_load_balancers(self) -> None:
        self._balancers = LoadBalancers()
        self.load_balancers = {name: self._balancers.open() for name in self.callers}
        if self.callers:
            ports = {self.load_balancers[name].port: caller for name, caller in self.callers.items()}
            self.admission = admission_configuration(self.folder, ports)

    def _start_on_free_ports(self) -> None:
        for attempt in range(1, _STARTS_MAX + 1):
            client, peer, apiserver, *more = find_free_ports(1 + 2 * len(self.etcds))
            pairs = zip([client, *more[::2]], [peer, *more[1::2]], strict=True)
            members = {name: EtcdMember(*pair) for name, pair in zip(self.etcds, pairs, strict=True)}
            self._grant_access(Ports(members, apiserver))
            others = dict(zip(self.api_servers[1:], find_free_ports(len(self.api_servers) - 1), strict=True))
            ports = {_API_SERVER: self.ports.apiserver, **others}
            self.apis = {name: replace(self.api, port=port, _idle=[]) for name, port in ports.items()}
            try:
                for name in self.etcds:  # none is healthy alone
                    self._launch(name)
                for name in self.etcds:
                    self._await_etcd(name)
                for name in self.api_servers:
                    self.start_component(name)
            except ComponentError as error:
                if _PORT_TAKEN not in str(error) or attempt == _STARTS_MAX:
                    raise
                for name in self.processes.names:
                    self.stop_component(name, kill=True)
                for name in self.etcds if len(self.etcds) > 1 else ():  # each has the former ports of the others
                    shutil.rmtree(self.folder / name, ignore_errors=True)
            else:
                return

    # --- components ---

    @property
    def processes(self) -> Processes:
        assert self._processes is not None, "the control plane is not running: call start()"
        return self._processes

    def start_component(self, name: str) -> None:
        """Start a component on its ports and data; wait until etcd or kube-apiserver is ready."""
        self._launch(name)
        if name in self.etcds:
            self._await_etcd(name)
        elif name in self.api_servers:
            self.wait(lambda: self._is_api_server_ready(name), f"{name} to be ready", name)

    def _launch(self, name: str) -> None:
        self.processes.start(name, [*self._command(name), *self.flags.get(name, ())])

    def _await_etcd(self, name: str) -> None:
        self.wait(lambda: self.is_etcd_healthy(name), f"{name} to be healthy", name)

    def stop_component(self, name: str, *, kill: bool = False) -> None:
        """Stop a component with SIGTERM, or with SIGKILL if `kill`."""
        self.processes.stop(name, kill=kill)

    def restart(self, name: str, *, kill: bool = False) -> None:
        self.stop_component(name, kill=kill)
        self.start_component(name)

    def log(self, name: str, lines: int = 30) -> str:
        """Return the last lines of a component's log; nothing after the control plane has stopped."""
        return self.processes.log(name, lines) if self._processes is not None else ""

    def _command(self, name: str) -> Sequence[str | Path]:
        match name:
            case _ if name in self.etcds:
                return components.etcd(self._binaries, self.folder, self.ports, name)
            case _ if name in self.api_servers:
                ports = replace(self.ports, apiserver=self.apis[name].port)
                return [
                    *components.kube_apiserver(self._binaries, self.folder, ports, self.admission, self.egress_socket),
                    *(self._aggregation() if self.kubelet_port else ()),
                ]
            case "kube-scheduler":
                user = self.write_kubeconfig("system:kube-scheduler")
                return components.kube_scheduler(self._binaries, self.folder, user)
            case "kube-controller-manager":
                user = self.write_kubeconfig("system:kube-controller-manager")
                return components.kube_controller_manager(self._binaries, self.folder, user)
            case "kwok":
                user = self.write_kubeconfig("kwok-controller")
                return components.kwok(self._binaries, self.folder, user, self.kubelet_port)
        raise AssertionError(f"no component {name!r}: one of {', '.join(COMPONENTS)}")

    def _aggregation(self) -> components.Command:
        return components.aggregation(*self.authority.user(components.FRONT_PROXY), self.authority.certificate)

    # --- waiting ---

    def wait(
        self, condition: Callable[[], Any], what: str, *suspects: str, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> Any:
        """Return the first true value of `condition`; the error after the timeout contains the logs of the suspects."""
        started = time.monotonic()
        while not (result := condition()):
            suspected = suspects or self.components
            self.processes.require(*(name for name in self.processes.names if name in suspected))
            waited_seconds = time.monotonic() - started
            if waited_seconds > timeout_seconds:
                logs = "".join(f"\n--- {name}:\n{self.log(name)}" for name in suspected)
                raise ComponentError(f"timed out after {timeout_seconds:g} s waiting for {what}{logs}")
            time.sleep(min(max(_POLL_SECONDS, waited_seconds / 10), _POLL_SECONDS_MAX))
        return result

    def wait_ready(self) -> None:
        """Wait until Pods can be created: the API server is ready, and the default service account exists."""
        suspects = (_API_SERVER, *self.etcds)
        self.wait(lambda: self._is_api_server_ready(_API_SERVER), "kube-apiserver to be ready", *suspects)
        self._await_account("default")

    def is_etcd_healthy(self, name: str) -> bool:
        """Return whether a member answers, and belongs to a majority."""
        port = self.ports.etcds[name].client_port
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=_PROBE_SECONDS) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def _is_api_server_ready(self, name: str) -> bool:
        try:
            return self.apis[name].request("GET", "/readyz", timeout_seconds=_PROBE_SECONDS)[0] == 200
        except OSError:
            return False

    # --- objects ---

    def create_namespace(self, name: str, **labels: str) -> None:
        """Create a namespace and wait until Pods can be created in it."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        self._await_account(name)

    def empty_namespace(self, name: str) -> None:
        """Delete the Pods and workloads of a namespace, without waiting.

        The namespace stays: its deletion is slow, because a controller lists every kind of object for it.
        """
        workloads = (f"/{group}/namespaces/{name}/{kind}" for group, kind in _WORKLOADS)
        self.delete(*(f"{path}?propagationPolicy=Background" for path in workloads), f"/api/v1/namespaces/{name}/pods")

    def _await_account(self, namespace: str) -> None:
        """Wait for the service account that Pods need; create it if no controller runs."""
        if _CONTROLLERS not in self.components:
            self.wait(lambda: self.api.get(f"/api/v1/namespaces/{namespace}"), f"namespace {namespace}")
            metadata = {"name": "default", "namespace": namespace}
            self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        suspects = {_CONTROLLERS} & {*self.components}
        self.wait(lambda: self.api.get(account), f"the default service account of {namespace}", *suspects)

    def add_nodes(self, *nodes: Mapping[str, Any]) -> None:
        """Create Nodes and wait until the scheduler can use them."""
        self.apply(*nodes)
        paths = [f"/api/v1/nodes/{node['metadata']['name']}" for node in nodes]
        self.wait(lambda: all(is_usable(self.api.get(path)) for path in paths), "nodes to be Ready", *COMPONENTS[3:])
