"""What `podgate serve` and `podgate controller` are told: flags, `PODGATE_*`, defaults; typed, all mistakes at once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from webhook.core.quantity import Duration
from webhook.errors import UserError
from webhook.store_access import MEMORY as MEMORY  # noqa: PLC0414  other modules know it from here
from webhook.store_access import StoreFiles, StoreUrl, masked
from webhook.tokens import LEEWAY_MAX_SECONDS

ENVIRONMENT_PREFIX = "PODGATE_"
_MIB = 1 << 20
_SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_NUMBER = 12  # digits; a longer number is a mistake
# Kubernetes puts these into every container for each Service whose name starts with `podgate`: not settings.
_SERVICE_LINK = re.compile(r"PODGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. An empty host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not _is_number(port) or int(port) > 65535:  # noqa: PLR2004  the largest TCP port
        raise ValueError("write HOST:PORT, such as 0.0.0.0:8443 (port 0 takes a free one)")
    return Address(host.strip("[]"), int(port))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def _path(text: str) -> Path:
    if not text:
        raise ValueError("write a path")
    return Path(text)


def _file(text: str) -> Path:
    path = _path(text)
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def _seconds(text: str) -> float:
    return Duration.parse(text).us / 1_000_000


def _patience(text: str) -> float:
    """Read a duration that may be none at all."""
    return 0.0 if text in {"0", "0s"} else _seconds(text)


def _leeway(text: str) -> float:
    seconds = _seconds(text)
    if seconds > LEEWAY_MAX_SECONDS:
        raise ValueError(f"write at most {LEEWAY_MAX_SECONDS:g}s")
    return seconds


def _count(text: str) -> int:
    if not _is_number(text):
        raise ValueError("write a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if not _is_number(text) or int(text) == 0:
        raise ValueError("write a whole number above 0")
    return int(text)


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError("write a ratio from 0 to 1, such as 0.01")
    return value


def store_of(text: str) -> str:
    """Return where counters live; ValueError says what to write."""
    if text != MEMORY:
        StoreUrl.parse(text)
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("write a name of small letters, digits and dashes, such as prod-eu-1")
    if text == "fleet":
        raise ValueError("it stands for all clusters on one Redis: choose another name, such as prod-eu-1")
    return text


def _url(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("write a URL, such as http://collector:4318/v1/traces")
    return text


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
        _path, "the policy document, watched; without it ConfigMap podgate-system/podgate-policy", optional=True
    )
    overrides: Path | None = _setting(
        _path, "overrides for a time, watched; without it ConfigMap podgate-system/podgate-overrides", optional=True
    )
    kubeconfig: Path | None = _setting(
        _file, "the cluster of the policy and of Namespace labels; inside one it is found by itself", optional=True
    )
    plain_listen: Address = _setting(_address, "plain: /healthz /readyz /metrics /status", "0.0.0.0:8081")
    store: str = _setting(
        store_of, "where counters live: memory, or the URL of a Redis that replicas share", MEMORY, secret=True
    )
    store_username_file: Path | None = _setting(
        _file, "whom to be for Redis, read for each new connection; a name may stand in the URL, too", optional=True
    )
    store_password_file: Path | None = _setting(
        _file, "the password for Redis, read for each new connection", optional=True
    )
    store_sentinel_username_file: Path | None = _setting(
        _file, "whom to be for Sentinels, where they ask for it", optional=True
    )
    store_sentinel_password_file: Path | None = _setting(
        _file, "the password for Sentinels, where they ask for one", optional=True
    )
    store_ca: Path | None = _setting(
        _file, "CAs that sign the certificates of rediss:// servers, PEM; without it those of the system", optional=True
    )
    store_cert: Path | None = _setting(
        _file, "our certificate for rediss:// servers that ask for one, PEM", optional=True
    )
    store_key: Path | None = _setting(_file, "its private key, PEM", optional=True)
    cluster: str = _setting(_name, "this cluster's name in a shared Redis", "default")

    @property
    def store_files(self) -> StoreFiles:
        """What opens the store, beside what its URL says."""
        return _store_files({item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ControllerSettings):
    """All settings of the server. A field `tls_cert` is the flag `--tls-cert` and the variable `PODGATE_TLS_CERT`."""

    tls_cert: Path = _setting(_file, "serving certificate chain, PEM; watched")
    tls_key: Path = _setting(_file, "its private key, PEM")
    client_ca: Path = _setting(_file, "CAs that sign client certificates, PEM; watched")
    jwks: Path = _setting(_file, "public keys that tokens are signed with, JWKS; watched")
    identities: Path = _setting(_file, "who may call: identity tuples, YAML")
    listen: Address = _setting(_address, "admission: /mutate and /validate, mutual TLS", "0.0.0.0:8443")
    store_deadline_seconds: float = _setting(_seconds, "longest wait of an admission for the store", "50ms")
    replicas: int | None = _setting(
        _positive,
        "servers that share what is left while the store is away; without it a cluster's are counted, else 1",
        optional=True,
    )
    ordinal: int = _setting(_count, "which of them this is, from 0; only beside --replicas", "0")
    max_body_bytes: int = _setting(_positive, "largest request body", str(7 * _MIB))
    body_timeout_seconds: float = _setting(_seconds, "longest time for a body to arrive", "5s")
    header_timeout_seconds: float = _setting(_seconds, "longest time for the first request on a connection", "10s")
    handshake_timeout_seconds: float = _setting(_seconds, "longest TLS handshake", "5s")
    keep_alive_seconds: float = _setting(_seconds, "idle connections; above the API server's own 90s", "120s")
    max_connection_age_seconds: float = _setting(_seconds, "a connection is retired after this long", "10m")
    max_connections: int = _setting(_positive, "open connections", "512")
    max_in_flight: int = _setting(_positive, "reviews at one time", "256")
    drain_seconds: float = _setting(_patience, "longest wait for callers to go elsewhere at shutdown", "15s")
    grace_seconds: float = _setting(_patience, "longest wait for running calls at shutdown", "31s")
    token_leeway_seconds: float = _setting(_leeway, "clock skew that a token's times may have, at most 30s", "10s")
    max_token_lifetime_seconds: float = _setting(_seconds, "longest exp - iat of a token", "24h")
    log_sample: int = _setting(
        _count,
        "log every Nth review that is no denial; 0 logs denials only, at most 10 a second of one service and code",
        "100",
    )
    record: Path | None = _setting(
        _path, "a file to append reviews to, without secrets, as events of podgate replay", optional=True
    )
    record_sample: int = _setting(_positive, "record every Nth pool, and every Nth service that is in none", "1")
    record_max_bytes: int = _setting(_positive, "stop recording when the file is this large", str(256 * _MIB))
    otlp_endpoint: str | None = _setting(
        _url, "OTLP/HTTP traces endpoint; no spans without it", optional=True, secret=True
    )
    trace_ratio: float = _setting(_ratio, "share of reviews traced where the caller has not decided", "0.01")


_Kind = TypeVar("_Kind", bound=ControllerSettings)


def _store_files(values: Mapping[str, Any]) -> StoreFiles:
    return StoreFiles(**{item.name: values.get(f"store_{item.name}") for item in fields(StoreFiles)})


def flag_of(name: str) -> str:
    return f"--{name.replace('_seconds', '').replace('_', '-')}"


def variable_of(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace("_seconds", "").upper()


def in_cluster(environment: Mapping[str, str]) -> bool:
    """Return whether this runs in a Pod that may talk to its cluster."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and _SERVICE_ACCOUNT_TOKEN.is_file()


def parse(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Return the server's settings; UserError as below."""
    return parse_as(Settings, flags, environment)


def parse_as(kind: type[_Kind], flags: Mapping[str, str | None], environment: Mapping[str, str]) -> _Kind:
    """Return typed settings of a kind; UserError lists every mistake, each with the flag or variable it came from."""
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for item in fields(kind):
        declared = item.metadata
        source, text = _source(item.name, flags, environment)
        text = declared["default"] if text is None else text
        if text is None:
            values[item.name] = None
            if not declared["optional"]:
                flag, variable = flag_of(item.name), variable_of(item.name)
                mistakes.append(f"{flag}: missing: {declared['meaning']}: give {flag} or {variable}")
            continue
        try:
            values[item.name] = declared["read"](text)
        except ValueError as error:
            shown = masked(text) if declared["secret"] else text
            mistakes.append(f"{source}: {shown!r}: {error}")
    if "store" in values:
        mistakes += [
            f"{_source(f'store_{name}', flags, environment)[0]}: {wrong}"
            for name, wrong in _store_files(values).mistakes(values["store"]).items()
        ]
    if {"ordinal", "replicas"} <= values.keys() and values["ordinal"] >= (values["replicas"] or 1):
        source, _ = _source("ordinal", flags, environment)
        told = values["replicas"]
        remedy = f"write a number below --replicas, {told}" if told else "give --replicas too, a number above it"
        mistakes.append(f"{source}: '{values['ordinal']}': {remedy}")
    told = [_source(name, flags, environment)[1] for name in ("policy", "kubeconfig")]
    if told == [None, None] and not in_cluster(environment):
        remedy = "give --policy or PODGATE_POLICY, or a --kubeconfig to take it from its cluster"
        mistakes.insert(0, f"--policy: missing, and this is no Pod with a service account's token: {remedy}")
    known = {variable_of(item.name) for item in fields(Settings)}
    mistakes += [
        f"{name}: no such setting: see podgate serve --help"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name)
    ]
    if mistakes:
        raise UserError("settings:\n" + "\n".join(f"  {mistake}" for mistake in mistakes))
    return kind(**values)


def _source(name: str, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> tuple[str, str | None]:
    if flags.get(name) is not None:
        return flag_of(name), flags[name]
    return variable_of(name), environment.get(variable_of(name))
