"""All settings there are: one field each, with how its text is read, what it means, and its default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from webhook.settings import readers as read
from webhook.settings.readers import Address
from webhook.store_access import MEMORY, StoreFiles

_MIB = 1 << 20


def _setting(
    read: Callable[[str], Any],
    meaning: str,
    default: str | None = None,
    *,
    optional: bool = False,
    secret: bool = False,
) -> Any:
    """Declare one setting: how its text is read, what it means, and its default as a user would write it.

    One that is `optional` may be None; one that may hold a `secret`, such as a URL with a password, is shown masked.
    """
    told = {"read": read, "meaning": meaning, "default": default, "optional": optional, "secret": secret}
    return field(metadata=told, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """All settings of the controller, which the server has too."""

    policy: Path | None = _setting(
        read.path, "the policy document, watched; without it ConfigMap podgate-system/podgate-policy", optional=True
    )
    overrides: Path | None = _setting(
        read.path, "overrides for a time, watched; without it ConfigMap podgate-system/podgate-overrides", optional=True
    )
    kubeconfig: Path | None = _setting(
        read.file, "the cluster of the policy and of Namespace labels; inside one it is found by itself", optional=True
    )
    plain_listen: Address = _setting(read.address, "plain: /healthz /readyz /metrics /status", "0.0.0.0:8081")
    store: str = _setting(
        read.store_of, "where counters live: memory, or the URL of a Redis that replicas share", MEMORY, secret=True
    )
    store_username_file: Path | None = _setting(
        read.file, "whom to be for Redis, read for each new connection; a name may stand in the URL, too", optional=True
    )
    store_password_file: Path | None = _setting(
        read.file, "the password for Redis, read for each new connection", optional=True
    )
    store_sentinel_username_file: Path | None = _setting(
        read.file, "whom to be for Sentinels, where they ask for it", optional=True
    )
    store_sentinel_password_file: Path | None = _setting(
        read.file, "the password for Sentinels, where they ask for one", optional=True
    )
    store_ca: Path | None = _setting(
        read.file,
        "CAs that sign the certificates of rediss:// servers, PEM; without it those of the system",
        optional=True,
    )
    store_cert: Path | None = _setting(
        read.file, "our certificate for rediss:// servers that ask for one, PEM", optional=True
    )
    store_key: Path | None = _setting(read.file, "its private key, PEM", optional=True)
    cluster: str = _setting(read.name, "this cluster's name in a shared Redis", "default")

    @property
    def store_files(self) -> StoreFiles:
        """What opens the store, beside what its URL says."""
        return store_files_of({item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ControllerSettings):
    """All settings of the server. A field `tls_cert` is the flag `--tls-cert` and the variable `PODGATE_TLS_CERT`."""

    tls_cert: Path = _setting(read.file, "serving certificate chain, PEM; watched")
    tls_key: Path = _setting(read.file, "its private key, PEM")
    client_ca: Path = _setting(read.file, "CAs that sign client certificates, PEM; watched")
    jwks: Path = _setting(read.file, "public keys that tokens are signed with, JWKS; watched")
    identities: Path = _setting(read.file, "who may call: identity tuples, YAML")
    listen: Address = _setting(read.address, "admission: /mutate and /validate, mutual TLS", "0.0.0.0:8443")
    store_deadline_seconds: float = _setting(read.seconds, "longest wait of an admission for the store", "50ms")
    replicas: int | None = _setting(
        read.positive,
        "servers that share what is left while the store is away; without it a cluster's are counted, else 1",
        optional=True,
    )
    ordinal: int = _setting(read.count, "which of them this is, from 0; only beside --replicas", "0")
    max_body_bytes: int = _setting(read.positive, "largest request body", str(7 * _MIB))
    body_timeout_seconds: float = _setting(read.seconds, "longest time for a body to arrive", "5s")
    header_timeout_seconds: float = _setting(read.seconds, "longest time for the first request on a connection", "10s")
    handshake_timeout_seconds: float = _setting(read.seconds, "longest TLS handshake", "5s")
    keep_alive_seconds: float = _setting(read.seconds, "idle connections; above the API server's own 90s", "120s")
    max_connection_age_seconds: float = _setting(read.seconds, "a connection is retired after this long", "10m")
    max_connections: int = _setting(read.positive, "open connections", "512")
    max_in_flight: int = _setting(read.positive, "reviews at one time", "256")
    drain_seconds: float = _setting(read.patience, "longest wait for callers to go elsewhere at shutdown", "15s")
    grace_seconds: float = _setting(read.patience, "longest wait for running calls at shutdown", "31s")
    token_leeway_seconds: float = _setting(read.leeway, "clock skew that a token's times may have, at most 30s", "10s")
    max_token_lifetime_seconds: float = _setting(read.seconds, "longest exp - iat of a token", "24h")
    log_sample: int = _setting(
        read.count,
        "log every Nth review that is no denial; 0 logs denials only, at most 10 a second of one service and code",
        "100",
    )
    record: Path | None = _setting(
        read.path, "a file to append reviews to, without secrets, as events of podgate replay", optional=True
    )
    record_sample: int = _setting(read.positive, "record every Nth pool, and every Nth service that is in none", "1")
    record_max_bytes: int = _setting(read.positive, "stop recording when the file is this large", str(256 * _MIB))
    otlp_endpoint: str | None = _setting(
        read.url, "OTLP/HTTP traces endpoint; no spans without it", optional=True, secret=True
    )
    trace_ratio: float = _setting(read.ratio, "share of reviews traced where the caller has not decided", "0.01")


def store_files_of(values: Mapping[str, Any]) -> StoreFiles:
    return StoreFiles(**{item.name: values.get(f"store_{item.name}") for item in fields(StoreFiles)})
