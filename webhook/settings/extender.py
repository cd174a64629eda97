"""Settings of the scheduler extender."""

from dataclasses import dataclass
from pathlib import Path

from webhook.core.policy_fields.nodes import PROMETHEUS_FILES
from webhook.settings import readers as read
from webhook.settings.declared import MIB, ProcessSettings
from webhook.settings.field import setting
from webhook.settings.readers import ListenAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings(ProcessSettings):
    """Settings of the scheduler extender."""

    tls_cert: Path = setting(read.file, "serving certificate chain, PEM; watched")
    tls_key: Path = setting(read.file, "private key of --tls-cert, PEM")
    client_ca: Path = setting(read.file, "CAs that sign the schedulers' client certificates, PEM; watched")
    scheduler_names: tuple[str, ...] = setting(
        read.names,
        "names of the schedulers' client certificates (common name, SPIFFE ID or DNS name), separated by commas",
        "podgate-scheduler",
    )
    listen: ListenAddress = setting(
        read.address, "extender: /filter, /prioritize and /preempt, mutual TLS", "0.0.0.0:8444"
    )
    decision_listen: ListenAddress = setting(
        read.address, "decision port, plain HTTP: the load of nodes, and records of Pods", "127.0.0.1:8083"
    )
    prometheus_files: Path = setting(
        read.path,
        "folder of the files that tokenFile and basicAuth of the policy may name: no others are sent to a Prometheus",
        PROMETHEUS_FILES,
    )
    max_body_bytes: int = setting(read.positive, "maximum size of a request body", str(7 * MIB))
    max_connections: int = setting(read.positive, "maximum number of open connections", "128")
    max_in_flight: int = setting(read.positive, "maximum number of concurrent calls", "64")
