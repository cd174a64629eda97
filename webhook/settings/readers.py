"""Readers of settings: each parses the text of one setting; ValueError says what to write instead."""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from webhook.authentication.jwt import LEEWAY_SECONDS_MAX, Binding
from webhook.core.kubernetes.quantity import Duration
from webhook.errors import UserError
from webhook.policy_in_force.policy_signatures import parse_public_keys
from webhook.ports.store_url import MEMORY, StoreUrl
from webhook.ports.traces import TraceParent
from webhook.support.kubeconfig import Kubeconfig

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_CLAIM_CHARACTERS_MAX = 512  # a server rejects longer ones
_SECONDS_MAX = 87_600 * 3600  # ten years, longer than any certificate should live
_NUMBER_DIGITS_MAX = 12  # a longer number is a mistake


class Certificates(StrEnum):
    """Manager of the certificates in the cluster."""

    OFF = "off"
    OWN = "own"
    CERT_MANAGER = "cert-manager"


class WebhookConfigurationMode(StrEnum):
    """What the leader does with the webhook configurations: the value of `--webhook-configurations`."""

    OFF = "off"
    CHECK = "check"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address to listen on. An empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClientIdentity(StrEnum):
    """Authentication of callers: the value of `--client-identity`."""

    MUTUAL = "mutual"
    """The client certificate of the connection, and a token."""
    FORWARDED = "forwarded"
    """The certificate that a proxy forwards, and a token; the proxy is authenticated by its own certificate."""
    REDUCED = "reduced"
    """None: a secret path that only the API server is configured with."""


def client_identity(text: str) -> ClientIdentity:
    try:
        return ClientIdentity(text)
    except ValueError:
        raise ValueError(f"write one of {', '.join(ClientIdentity)}") from None


def address(text: str) -> ListenAddress:
    host, separator, port = text.rpartition(":")
    if not separator or not is_number(port) or int(port) > 65535:  # noqa: PLR2004  the largest TCP port
        raise ValueError("write HOST:PORT, such as 0.0.0.0:8443 (port 0 takes a free one)")
    return ListenAddress(host.strip("[]"), int(port))


def loopback(text: str) -> ListenAddress:
    found = address(text)
    if found.host != "localhost" and not _is_loopback(found.host):
        raise ValueError("write 127.0.0.1:PORT: it takes tokens over plain HTTP, so only this Pod may reach it")
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("write a host name, such as podgate.example.com")
    return text


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX


def path(text: str) -> Path:
    if not text:
        raise ValueError("write a path")
    return Path(text)


def file(text: str) -> Path:
    found = path(text)
    if not _is_file(found):
        raise ValueError("there is no such file")
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # not a path, such as the text of a key, which the error would quote
        return False


def public_keys(text: str) -> Path:
    """Read a file of public keys; its content is checked too."""
    found = file(text)
    try:
        parse_public_keys(found.read_bytes(), "its content")
    except UserError as error:
        raise ValueError(f"{error}: {error.remedy}") from None
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror or error}") from None
    return found


def kubeconfig(text: str) -> Kubeconfig:
    """Read a list of files such as KUBECONFIG's; absent files are left out, as by kubectl."""
    path(text)
    found = Kubeconfig.from_text(text)
    if not any(map(_is_file, found.files)):
        raise ValueError("there is no such file")
    return found


def context(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("write the name of a context, such as prod-eu-1")
    return text


def seconds(text: str) -> float:
    found = Duration.parse(text).us / 1_000_000
    if found > _SECONDS_MAX:
        raise ValueError("longer than 87600h: write at most 87600h")
    return found


def patience(text: str) -> float:
    """Read a duration that may be zero."""
    return 0.0 if text in {"0", "0s"} else seconds(text)


def leeway(text: str) -> float:
    found = seconds(text)
    if found > LEEWAY_SECONDS_MAX:
        raise ValueError(f"write at most {LEEWAY_SECONDS_MAX:g}s")
    return found


def binding(text: str) -> Binding:
    try:
        return Binding(text)
    except ValueError:
        raise ValueError(f"write one of {', '.join(Binding)}") from None


def truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("write true or false")
    return text == "true"


def count(text: str) -> int:
    if not is_number(text):
        raise ValueError("write a whole number, 0 or more")
    return int(text)


def positive(text: str) -> int:
    if not is_number(text) or int(text) == 0:
        raise ValueError("write a whole number above 0")
    return int(text)


def percent(text: str) -> float:
    """Read a percentage; return it as a share."""
    number = text.removesuffix("%")
    if number == text or not is_number(number) or not 0 < int(number) <= 100:  # noqa: PLR2004  the whole
        raise ValueError("write a percentage from 1% to 100%")
    return int(number) / 100


def certificates(text: str) -> Certificates:
    try:
        return Certificates(text)
    except ValueError:
        raise ValueError(f"write {', '.join(Certificates)}") from None


def webhook_configurations(text: str) -> WebhookConfigurationMode:
    try:
        return WebhookConfigurationMode(text)
    except ValueError:
        raise ValueError(f"write {', '.join(WebhookConfigurationMode)}") from None


def trace_parent(text: str) -> TraceParent:
    try:
        return TraceParent(text)
    except ValueError:
        raise ValueError(f"write one of {', '.join(TraceParent)}") from None


def ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError("write a ratio from 0 to 1, such as 0.01")
    return value


def parse_store(text: str) -> str:
    """Read the counter store: `memory` or a URL."""
    if text != MEMORY:
        StoreUrl.parse(text)
    return text


def ports(text: str) -> tuple[int, int]:
    first, _, second = text.partition(",")
    if not (is_number(first) and is_number(second)) or first == second or min(int(first), int(second)) == 0:
        raise ValueError("write two ports, such as 443,444")
    return int(first), int(second)


def claim(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text or not 0 < len(text) <= _CLAIM_CHARACTERS_MAX:
        raise ValueError("write a text without spaces, such as https://podgate.podgate-system.svc")
    return text


def user(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("write a user name of the cluster, such as kubernetes-admin")
    return text


def name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("write a name of small letters, digits and dashes, such as prod-eu-1")
    if text == "fleet":
        raise ValueError("it is reserved for all clusters on one Redis: choose another name, such as prod-eu-1")
    return text


def _split_url(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  it is read only here
    except ValueError:
        raise ValueError("write a URL: this one has no host and port that can be read") from None  # it quotes them
    return parts


def url(text: str) -> str:
    url = _split_url(text)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("write a URL, such as http://collector:4318/v1/traces")
    return text


def https_url(text: str) -> str:
    parts = _split_url(text)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("write an https URL without a user, such as https://issuer.example/jwks.json")
    return text


def names(text: str) -> tuple[str, ...]:
    """Read names in certificates, separated by commas."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found) or any(not name.isprintable() or len(name) > _CLAIM_CHARACTERS_MAX for name in found):
        raise ValueError("a name that is empty or cannot be in a certificate: write NAME,NAME")
    return found
