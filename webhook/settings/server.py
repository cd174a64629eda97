"""Declarations of the settings of the server, beside those that it shares with the controller."""

from dataclasses import dataclass
from pathlib import Path

from webhook.authentication.jwt import Binding
from webhook.ports.traces import TraceParent
from webhook.settings import readers as read
from webhook.settings.declared import MIB, ControllerSettings
from webhook.settings.field import setting
from webhook.settings.readers import ClientIdentity, ListenAddress

_KNOWN_CALLERS = (ClientIdentity.MUTUAL, ClientIdentity.FORWARDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ControllerSettings):
    """Settings of the server. A field `tls_cert` is the flag `--tls-cert` and the variable `PODGATE_TLS_CERT`."""

    tls_cert: Path = setting(read.file, "serving certificate chain, PEM; watched")
    tls_key: Path = setting(read.file, "private key of --tls-cert, PEM")
    serving_ca: Path | None = setting(
        read.file,
        "the caBundle of the webhook configurations, PEM; watched: ready only while --tls-cert verifies by it",
        optional=True,
    )
    client_identity: ClientIdentity = setting(
        read.client_identity,
        "how callers are identified: mutual (certificate and token), forwarded (the same, behind a proxy with its "
        "own certificate) or reduced (not authenticated: a secret path)",
        str(ClientIdentity.MUTUAL),
    )
    forwarded_ca: Path | None = setting(
        read.file,
        "CAs that sign the certificates of callers behind a proxy, PEM; watched",
        modes=(ClientIdentity.FORWARDED,),
    )
    reduced_path_file: Path | None = setting(
        read.file,
        "file with the secret path: 32 or more lowercase letters and digits; two lines during a change; watched",
        modes=(ClientIdentity.REDUCED,),
    )
    client_ca: Path | None = setting(
        read.file, "CAs that sign client certificates (of proxies, if forwarded), PEM; watched", modes=_KNOWN_CALLERS
    )
    jwks: Path | None = setting(
        read.file,
        "public keys of tokens, JWKS; watched; this, --jwks-url or --cluster-keys is required",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_url: str | None = setting(
        read.https_url,
        "https URL of a JWKS, fetched every minute",
        optional=True,
        secret=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_ca: Path | None = setting(
        read.file,
        "CAs that sign the certificate of the --jwks-url server, PEM; watched; the default is the system's",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_max_stale_seconds: float = setting(
        read.seconds, "how long fetched keys are valid while fetching fails", "1h", modes=_KNOWN_CALLERS
    )
    cluster_keys: bool = setting(
        read.truth,
        "accept tokens of the cluster's own issuer, with the keys that its API server publishes",
        "false",
        modes=_KNOWN_CALLERS,
    )
    denied_tokens: Path | None = setting(
        read.file,
        "revoked tokens, a list of {iss, jti}, YAML; watched",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    token_binding: Binding = setting(
        read.binding,
        "whether a token must be bound to the client certificate by cnf: off, if-present or required",
        str(Binding.IF_PRESENT),
        modes=_KNOWN_CALLERS,
    )
    identities: Path | None = setting(read.file, "identities that may call, YAML; watched", modes=_KNOWN_CALLERS)
    listen: ListenAddress = setting(read.address, "admission: /mutate and /validate, mutual TLS", "0.0.0.0:8443")
    decision_listen: ListenAddress = setting(
        read.address,
        "decision port: /api/v1/decisions and policies, plain HTTP without authentication, so for loopback only",
        "127.0.0.1:8082",
    )
    console_listen: ListenAddress | None = setting(
        read.loopback,
        "console for users of the cluster, read-only, plain HTTP on loopback, such as 127.0.0.1:8084; by default none",
        optional=True,
    )
    console_host: str | None = setting(
        read.host, "host name by which a proxy in this server's Pod serves the console over TLS", optional=True
    )
    shared_decisions: int = setting(
        read.count, "decision records kept in Redis for all servers, about 0.7 KB each; 0: none", "50000"
    )
    store_deadline_seconds: float = setting(read.seconds, "maximum time that an admission waits for the store", "50ms")
    overload_p99_seconds: float = setting(
        read.seconds, "P99 of reviews above which this server is overloaded: Pods of onOverload: Gate wait", "800ms"
    )
    overload_failures: float = setting(
        read.percent, "share of reviews that fail above which this server is overloaded", "5%"
    )
    overload_window_seconds: float = setting(
        read.seconds,
        "time over which both are measured; the overload ends once both have been below for as long",
        "10s",
    )
    overload_minimum: int = setting(
        read.positive, "minimum number of slow or failed reviews within --overload-window for an overload", "5"
    )
    replicas: int | None = setting(
        read.positive,
        "servers that share the quota while the store is unavailable; by default counted in the cluster, else 1",
        optional=True,
    )
    ordinal: int = setting(read.count, "ordinal of this server, from 0; only with --replicas", "0")
    max_body_bytes: int = setting(read.positive, "maximum size of a request body", str(7 * MIB), reduced=str(3 * MIB))
    body_timeout_seconds: float = setting(read.seconds, "maximum time for a body to arrive", "5s", reduced="2s")
    header_timeout_seconds: float = setting(
        read.seconds, "maximum time for the first header of a connection, from its first byte", "10s", reduced="3s"
    )
    handshake_timeout_seconds: float = setting(read.seconds, "maximum time of a TLS handshake", "5s", reduced="3s")
    keep_alive_seconds: float = setting(
        read.seconds, "maximum idle time of a connection; above the API server's 90s", "120s"
    )
    max_connection_age_seconds: float = setting(read.seconds, "maximum age of a connection", "10m", reduced="5m")
    max_connections: int = setting(read.positive, "maximum number of open connections", "512", reduced="128")
    max_in_flight: int = setting(read.positive, "maximum number of concurrent calls", "256", reduced="64")
    drain_seconds: float = setting(
        read.patience, "maximum time at shutdown for clients to move to other servers", "15s"
    )
    grace_seconds: float = setting(read.patience, "maximum time at shutdown for running calls", "31s")
    token_leeway_seconds: float = setting(
        read.leeway, "allowed clock skew of a token's times, at most 30s", "10s", modes=_KNOWN_CALLERS
    )
    max_token_lifetime_seconds: float = setting(
        read.seconds, "maximum exp - iat of a token", "24h", modes=_KNOWN_CALLERS
    )
    log_sample: int = setting(
        read.count,
        "log every Nth review that is not a denial; 0: denials only, at most 10 per second, service and code",
        "100",
    )
    controller_user: str | None = setting(
        read.user,
        "user name of the controller, which alone may remove the gate of a waiting Pod; needed outside the cluster."
        " The manifests' service accounts may always remove it, and with --store memory this server's own user",
        optional=True,
    )
    record: Path | None = setting(
        read.path, "file to which reviews are appended, without secrets, as events of podgate replay", optional=True
    )
    record_sample: int = setting(read.positive, "record every Nth pool, and every Nth service without a pool", "1")
    record_max_bytes: int = setting(read.positive, "maximum size of the record", str(256 * MIB))
    trace_parent: TraceParent = setting(
        read.trace_parent,
        "use of a caller's traceparent: Follow (the caller decides, for at most 10 sampled ones per second), Link "
        "(the ratio decides, with a link to it) or Ignore (the ratio decides)",
        str(TraceParent.FOLLOW),
    )
