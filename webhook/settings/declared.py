"""Declarations of the settings of all processes and of the controller: a field, reader, meaning and default each."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from webhook.ports.store_url import MEMORY, StoreFiles
from webhook.settings import readers as read
from webhook.settings.field import setting
from webhook.settings.readers import Certificates, ListenAddress, WebhookConfigurationMode
from webhook.support.kubeconfig import Kubeconfig

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings that all long-running processes have."""

    policy: Path | None = setting(
        read.path, "the policy document, watched; without it ConfigMap podgate-system/podgate-policy", optional=True
    )
    policy_keys: Path | None = setting(
        read.public_keys,
        "public keys (Ed25519, PEM); a policy without a signature by one of them is refused",
        optional=True,
    )
    overrides: Path | None = setting(
        read.path,
        "the overrides document, watched; without it ConfigMap podgate-system/podgate-overrides",
        optional=True,
    )
    kubeconfig: Kubeconfig | None = setting(
        read.kubeconfig,
        "kubeconfig of the cluster with the policy and the Namespaces; not needed inside it",
        optional=True,
    )
    context: str | None = setting(
        read.context, "context in --kubeconfig; without it the current context", optional=True
    )
    plain_listen: ListenAddress = setting(
        read.address, "health port: /healthz /readyz /metrics /status, plain HTTP", "0.0.0.0:8081"
    )
    otlp_endpoint: str | None = setting(
        read.url, "OTLP/HTTP endpoint for traces; without it nothing is traced", optional=True, secret=True
    )
    trace_ratio: float = setting(
        read.ratio, "share of Pods of which at least one of the two calls is traced, unless the caller decides", "0.01"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings(ProcessSettings):
    """Settings of the controller. The server has them too."""

    store: str = setting(
        read.parse_store,
        "counter store: memory, or the URL of a Redis that replicas share",
        MEMORY,
        secret=True,
    )
    store_username_file: Path | None = setting(
        read.file, "file with the Redis user, unless it is in the URL; read for each new connection", optional=True
    )
    store_password_file: Path | None = setting(
        read.file, "file with the Redis password; read for each new connection", optional=True
    )
    store_sentinel_username_file: Path | None = setting(
        read.file, "file with the user for Sentinels, if they require one", optional=True
    )
    store_sentinel_password_file: Path | None = setting(
        read.file, "file with the password for Sentinels, if they require one", optional=True
    )
    store_ca: Path | None = setting(
        read.file,
        "CAs that sign the certificates of rediss:// servers, PEM; the default is the system's",
        optional=True,
    )
    store_cert: Path | None = setting(
        read.file, "client certificate for rediss:// servers that require one, PEM", optional=True
    )
    store_key: Path | None = setting(read.file, "private key of --store-cert, PEM", optional=True)
    cluster: str = setting(read.name, "this cluster's name in a shared Redis", "default")
    certificates: Certificates = setting(
        read.certificates,
        "who manages certificates in the cluster: off (you), own (the leader) or cert-manager",
        str(Certificates.OFF),
    )
    serving_ca_lifetime_seconds: float = setting(
        read.seconds, "lifetime of the serving CA; with --certificates own", "8760h"
    )
    serving_lifetime_seconds: float = setting(
        read.seconds, "lifetime of a serving certificate; with --certificates own", "336h"
    )
    client_ca_lifetime_seconds: float = setting(
        read.seconds, "lifetime of the client CA; with --certificates own", "8760h"
    )
    client_lifetime_seconds: float = setting(
        read.seconds, "lifetime of the API server's certificate; with --certificates own", "336h"
    )
    scheduler_certificates: bool = setting(
        read.truth,
        "whether the leader also manages the certificates of the scheduler extender and its kube-scheduler;"
        " with --certificates own",
        "false",
    )
    webhook_configurations: WebhookConfigurationMode = setting(
        read.webhook_configurations,
        "whether the leader leaves the webhook configurations alone (off), compares them with the policy and reports"
        " differences (check), or also writes them (keep)",
        str(WebhookConfigurationMode.CHECK),
    )
    wake_controllers: bool = setting(
        read.truth,
        "whether the leader wakes controllers whose Pods were denied by quota or breaker, once there is room",
        "true",
    )
    release_rate: int = setting(
        read.positive, "maximum number of waiting Pods that the leader releases per second", "300"
    )
    caller_ports: tuple[int, int] | None = setting(
        read.ports,
        "two ports of the Service; the API server's certificate is renewed on the idle one; with --certificates own",
        optional=True,
    )
    token_issuer: str | None = setting(
        read.claim,
        "issuer (iss) of the API server's tokens; the leader issues them with its own rotating keys",
        optional=True,
    )
    token_subject: str = setting(read.claim, "sub and client_id of issued tokens", "kube-apiserver")
    token_lifetime_seconds: float = setting(
        read.seconds,
        "lifetime of issued tokens, 2m to the servers' --max-token-lifetime; renewed after a tenth",
        "1h",
    )
    token_key_lifetime_seconds: float = setting(read.seconds, "how long a key signs tokens", "720h")

    @property
    def store_files(self) -> StoreFiles:
        """Files with credentials and certificates for the store, in addition to its URL."""
        return build_store_files({item.name: getattr(self, item.name) for item in fields(self)})


def build_store_files(values: Mapping[str, Any]) -> StoreFiles:
    return StoreFiles(**{item.name: values.get(f"store_{item.name}") for item in fields(StoreFiles)})
