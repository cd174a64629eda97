"""Command lines and configuration files of each component, from paths and ports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.binaries import Binaries, kwok_metrics

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Issuer of service account tokens: kubeadm's default."""

FRONT_PROXY = "front-proxy-client"

KEPT_AS_IT_IS = {"kwok.x-k8s.io/status": "custom"}
"""Annotation of a Pod whose status only the test writes: kwok would end each Pod of a Job at once."""

SCHEDULERS = ("default-scheduler", "podgate-scheduler")

_CONTROLLERS = (
    *("deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "job", "cronjob"),
    *("garbage-collector", "pod-garbage-collector", "namespace", "node-lifecycle", "taint-eviction", "disruption"),
    *("serviceaccount", "serviceaccount-token", "root-ca-certificate-publisher", "resourcequota"),
    *("endpoints", "endpointslice", "ttl-after-finished", "clusterrole-aggregation", "horizontal-pod-autoscaler"),
)

Command = list[str | Path]


@dataclass(frozen=True)
class EtcdMember:
    """Ports of a member of etcd on loopback."""

    client_port: int
    peer_port: int

    @property
    def client(self) -> str:
        return f"http://127.0.0.1:{self.client_port}"

    @property
    def peer(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"


@dataclass(frozen=True)
class Ports:
    """Ports of the components on loopback."""

    etcds: Mapping[str, EtcdMember]
    """By name; a lone member is `etcd`."""
    apiserver: int

    @property
    def etcd(self) -> int:
        """Of the first member."""
        return next(iter(self.etcds.values())).client_port


def etcd(binaries: Binaries, folder: Path, ports: Ports, name: str) -> Command:
    member = ports.etcds[name]
    members = ",".join(f"{other}={each.peer}" for other, each in ports.etcds.items())
    return [
        binaries.etcd,
        *(f"--name={name}", f"--data-dir={folder / name}", f"--initial-cluster={members}"),
        *(f"--listen-client-urls={member.client}", f"--advertise-client-urls={member.client}"),
        *(f"--listen-peer-urls={member.peer}", f"--initial-advertise-peer-urls={member.peer}"),
        "--unsafe-no-fsync=true",  # the data must survive a restart of the process only
    ]


def kube_apiserver(
    binaries: Binaries, folder: Path, ports: Ports, admission: Path | None, egress_socket: Path | None
) -> Command:
    pki = folder / "pki"
    return [
        binaries.kube_apiserver,
        f"--etcd-servers={','.join(member.client for member in ports.etcds.values())}",
        *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={ports.apiserver}"),
        *("--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"),
        *("--authorization-mode=RBAC", "--allow-privileged=true"),
        *(f"--tls-cert-file={pki / 'apiserver.crt'}", f"--tls-private-key-file={pki / 'apiserver.key'}"),
        *(f"--client-ca-file={pki / 'ca.crt'}", f"--cert-dir={pki}"),
        f"--service-account-issuer={ISSUER}",
        *(f"--service-account-key-file={pki / 'sa.pub'}", f"--service-account-signing-key-file={pki / 'sa.key'}"),
        "--shutdown-watch-termination-grace-period=1s",  # else watch requests delay a restart for a minute
        *([f"--admission-control-config-file={admission}"] if admission else []),
        *([f"--egress-selector-config-file={_egress(folder, egress_socket)}"] if egress_socket else []),
    ]


def aggregation(certificate: Path, key: Path, authority: Path) -> Command:
    """Return the flags by which kube-apiserver tells an aggregated API server who the caller is."""
    return [
        *(f"--requestheader-client-ca-file={authority}", f"--requestheader-allowed-names={FRONT_PROXY}"),
        *("--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group"),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        *(f"--proxy-client-cert-file={certificate}", f"--proxy-client-key-file={key}"),
    ]


def _egress(folder: Path, socket: Path) -> Path:
    """Write the configuration by which kube-apiserver connects to Pods and Services through an HTTP proxy."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    configuration = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    return write_json(folder / "egress.json", configuration)


def kube_scheduler(binaries: Binaries, folder: Path, kubeconfig: Path) -> Command:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 200, "burst": 400},
        "leaderElection": {"leaderElect": False},
        "podMaxBackoffSeconds": 2,  # an unschedulable Pod is retried soon after a new Node
        "profiles": [{"schedulerName": name} for name in SCHEDULERS],
    }
    path = write_json(folder / "scheduler.json", configuration)
    return [binaries.kube_scheduler, f"--config={path}", "--secure-port=0"]


def kube_controller_manager(binaries: Binaries, folder: Path, kubeconfig: Path) -> Command:
    pki = folder / "pki"
    return [
        binaries.kube_controller_manager,
        f"--kubeconfig={kubeconfig}",
        *("--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400"),
        "--horizontal-pod-autoscaler-sync-period=1s",
        # Each controller has its own service account, as in a kubeadm cluster: webhooks see the creator of a Pod.
        "--use-service-account-credentials=true",
        *(f"--root-ca-file={pki / 'ca.crt'}", f"--service-account-private-key-file={pki / 'sa.key'}"),
        f"--controllers={','.join(f'{name}-controller' for name in _CONTROLLERS)}",
    ]


def kwok(binaries: Binaries, folder: Path, kubeconfig: Path, kubelet_port: int = 0) -> Command:
    configuration = {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration"}
    # Nodes name no kubelet port: two runs would conflict.
    address = {"nodePort": 0, "serverAddress": f"127.0.0.1:{kubelet_port}" if kubelet_port else ""}
    parallelism = {"nodePlayStageParallelism": 4, "podPlayStageParallelism": 4, "nodeLeaseParallelism": 4}
    options = {
        **address,
        **parallelism,
        "manageAllNodes": True,
        "cidr": "10.64.0.0/16",
        "nodeLeaseDurationSeconds": 40,
        "disregardStatusWithAnnotationSelector": ",".join(f"{key}={value}" for key, value in KEPT_AS_IT_IS.items()),
    }
    path = write_json(folder / "kwok.json", {**configuration, "options": options})
    return [
        binaries.kwok,
        "--v=WARN",
        f"--kubeconfig={kubeconfig}",
        *(f"--config={file}" for file in (path, *binaries.kwok_stages, *(kwok_metrics() if kubelet_port else ()))),
    ]


def kubeconfig(server: str, authority: Path, user: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
        "current-context": "tests",
    }


def write_json(path: Path, document: Any) -> Path:
    """Write a document as JSON, which is valid YAML."""
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
