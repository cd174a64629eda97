"""All settings there are: one field each, with how its text is read, what it means, and its default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from webhook.authentication.tokens.jwt import Binding
from webhook.settings import readers as read
from webhook.settings.readers import Certificates, ClientIdentity, ListenAddress, TraceParent
from webhook.store.store_url import MEMORY, StoreFiles

_MIB = 1 << 20
_KNOWN_CALLERS = (ClientIdentity.MUTUAL, ClientIdentity.FORWARDED)


def _setting(
    read: Callable[[str], Any],
    meaning: str,
    default: str | None = None,
    *,
    optional: bool = False,
    secret: bool = False,
    modes: tuple[ClientIdentity, ...] = tuple(ClientIdentity),
    reduced: str | None = None,
) -> Any:
    """Declare one setting: how its text is read, what it means, and its default as a user would write it.

    One that is `optional` may be None; one that may hold a `secret`, such as a URL with a password, is shown masked.
    One that belongs to some `modes` of `--client-identity` is a mistake in the others. `reduced` is its default there.
    """
    told = {"read": read, "meaning": meaning, "default": default, "optional": optional, "secret": secret}
    return field(metadata={**told, "modes": modes, "reduced": reduced or default}, repr=not secret)


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
    plain_listen: ListenAddress = _setting(read.address, "plain: /healthz /readyz /metrics /status", "0.0.0.0:8081")
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
    certificates: Certificates = _setting(
        read.certificates,
        "who keeps certificates in the cluster: off (nobody here), own (whoever leads) or cert-manager",
        str(Certificates.OFF),
    )
    serving_ca_lifetime_seconds: float = _setting(
        read.seconds, "how long our CA of serving certificates lives; with --certificates own", "8760h"
    )
    serving_lifetime_seconds: float = _setting(read.seconds, "how long a serving certificate lives; as above", "336h")
    client_ca_lifetime_seconds: float = _setting(
        read.seconds, "how long our CA of the API server's certificate lives; as above", "8760h"
    )
    client_lifetime_seconds: float = _setting(read.seconds, "how long the API server's certificate lives", "336h")
    caller_ports: tuple[int, int] | None = _setting(
        read.ports,
        "two ports of our Service, with --certificates own: the API server's certificate changes behind the idle one",
        optional=True,
    )
    token_issuer: str | None = _setting(
        read.claim,
        "issue the API server's tokens under this name, with keys of our own that change; whoever leads does",
        optional=True,
    )
    token_subject: str = _setting(read.claim, "whom they name, as sub and as client_id", "kube-apiserver")
    token_lifetime_seconds: float = _setting(
        read.seconds,
        "how long a token lives that we issue, 2m to the servers' --max-token-lifetime; the next comes at a tenth",
        "1h",
    )
    token_key_lifetime_seconds: float = _setting(read.seconds, "how long a key signs them", "720h")

    @property
    def store_files(self) -> StoreFiles:
        """What opens the store, beside what its URL says."""
        return store_files_of({item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ControllerSettings):
    """All settings of the server. A field `tls_cert` is the flag `--tls-cert` and the variable `PODGATE_TLS_CERT`."""

    tls_cert: Path = _setting(read.file, "serving certificate chain, PEM; watched")
    tls_key: Path = _setting(read.file, "its private key, PEM")
    serving_ca: Path | None = _setting(
        read.file,
        "the caBundle of the webhook configurations, PEM; watched: ready only while our certificate verifies by it",
        optional=True,
    )
    client_identity: ClientIdentity = _setting(
        read.client_identity,
        "how callers are known: mutual (certificate and token), forwarded (the same, told by a proxy with a "
        "certificate of its own) or reduced (not at all: by a path that nobody can guess)",
        str(ClientIdentity.MUTUAL),
    )
    forwarded_ca: Path | None = _setting(
        read.file,
        "CAs that sign the certificates of callers behind a proxy, PEM; watched",
        modes=(ClientIdentity.FORWARDED,),
    )
    reduced_path_file: Path | None = _setting(
        read.file,
        "the path that nobody can guess: 32 small letters and digits or more; two lines while it changes; watched",
        modes=(ClientIdentity.REDUCED,),
    )
    client_ca: Path | None = _setting(
        read.file, "CAs that sign client certificates (of proxies, if forwarded), PEM; watched", modes=_KNOWN_CALLERS
    )
    jwks: Path | None = _setting(
        read.file,
        "public keys that tokens are signed with, JWKS; watched; this, --jwks-url or --cluster-keys is needed",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_url: str | None = _setting(
        read.https_url,
        "the same from a server, fetched every minute",
        optional=True,
        secret=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_ca: Path | None = _setting(
        read.file,
        "CAs that sign the certificate of its server, PEM, watched; without it those of the system",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    jwks_max_stale_seconds: float = _setting(
        read.seconds, "how long fetched keys hold while no newer ones can be had", "1h", modes=_KNOWN_CALLERS
    )
    cluster_keys: bool = _setting(
        read.truth,
        "take tokens of the cluster's own issuer, by the keys that its API server publishes",
        "false",
        modes=_KNOWN_CALLERS,
    )
    denied_tokens: Path | None = _setting(
        read.file,
        "good tokens to be refused all the same, a list of {iss, jti}, YAML; watched; one without jti cannot be named",
        optional=True,
        modes=_KNOWN_CALLERS,
    )
    token_binding: Binding = _setting(
        read.binding,
        "whether a token must come with the certificate that its cnf names: off, if-present or required",
        str(Binding.IF_PRESENT),
        modes=_KNOWN_CALLERS,
    )
    identities: Path | None = _setting(read.file, "who may call: identity tuples, YAML; watched", modes=_KNOWN_CALLERS)
    listen: ListenAddress = _setting(read.address, "admission: /mutate and /validate, mutual TLS", "0.0.0.0:8443")
    store_deadline_seconds: float = _setting(read.seconds, "longest wait of an admission for the store", "50ms")
    replicas: int | None = _setting(
        read.positive,
        "servers that share what is left while the store is away; without it a cluster's are counted, else 1",
        optional=True,
    )
    ordinal: int = _setting(read.count, "which of them this is, from 0; only beside --replicas", "0")
    max_body_bytes: int = _setting(read.positive, "largest request body", str(7 * _MIB), reduced=str(3 * _MIB))
    body_timeout_seconds: float = _setting(read.seconds, "longest time for a body to arrive", "5s", reduced="2s")
    header_timeout_seconds: float = _setting(
        read.seconds, "longest time for the first header on a connection, from its first byte", "10s", reduced="3s"
    )
    handshake_timeout_seconds: float = _setting(read.seconds, "longest TLS handshake", "5s", reduced="3s")
    keep_alive_seconds: float = _setting(
        read.seconds, "idle connections, unused ones too; above the API server's own 90s", "120s"
    )
    max_connection_age_seconds: float = _setting(
        read.seconds, "a connection is retired after this long", "10m", reduced="5m"
    )
    max_connections: int = _setting(read.positive, "open connections", "512", reduced="128")
    max_in_flight: int = _setting(read.positive, "reviews at one time", "256", reduced="64")
    drain_seconds: float = _setting(read.patience, "longest wait for callers to go elsewhere at shutdown", "15s")
    grace_seconds: float = _setting(read.patience, "longest wait for running calls at shutdown", "31s")
    token_leeway_seconds: float = _setting(
        read.leeway, "clock skew that a token's times may have, at most 30s", "10s", modes=_KNOWN_CALLERS
    )
    max_token_lifetime_seconds: float = _setting(
        read.seconds, "longest exp - iat of a token", "24h", modes=_KNOWN_CALLERS
    )
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
    trace_parent: TraceParent = _setting(
        read.trace_parent,
        "a caller's traceparent: Follow (its choice is taken; of sampled ones at most 10 a second) or Link (the ratio "
        "decides, with a link to it)",
        str(TraceParent.FOLLOW),
    )


def store_files_of(values: Mapping[str, Any]) -> StoreFiles:
    return StoreFiles(**{item.name: values.get(f"store_{item.name}") for item in fields(StoreFiles)})
