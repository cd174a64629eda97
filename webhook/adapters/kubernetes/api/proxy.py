"""Proxy for the API server, chosen from HTTP_PROXY, HTTPS_PROXY and NO_PROXY as kubectl does.

Source: golang.org/x/net/http/httpproxy. Unlike Python, it accepts address ranges and ports in NO_PROXY, and uses no
proxy for loopback.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from webhook.errors import UserError
from webhook.support.redaction import mask

_PORTS = {"http": "80", "https": "443"}
Address = IPv4Address | IPv6Address


def find_proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a URL; None to connect directly."""
    parts = urlsplit(url)
    proxy = _read_variable(environment, f"{parts.scheme.upper()}_PROXY")
    if not proxy or not _uses_proxy(parts, _read_variable(environment, "NO_PROXY")):
        return None
    return check_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{parts.scheme.upper()}_PROXY")


def check_proxy(proxy: str, where: str) -> str:
    """Return a proxy's URL. UserError: it is no HTTP proxy."""
    if not proxy.startswith(("http://", "https://")):
        raise UserError(f"{where}: {mask(proxy)!r}: not a proxy of HTTP", "write http://HOST:PORT")
    return proxy


def _read_variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _uses_proxy(url: SplitResult, exceptions: str) -> bool:
    host = url.hostname or ""
    port = str(url.port or "") or _PORTS.get(url.scheme, "")
    address = _parse_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = (entry.strip().lower() for entry in exceptions.split(","))
    return not any(_excepts(entry, host.lower(), port, address) for entry in entries if entry)


def _excepts(entry: str, host: str, port: str, address: Address | None) -> bool:
    """Return whether an entry of NO_PROXY matches a host and port."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    named, of_port = _split(entry)
    if of_port and of_port != port:
        return False
    excepted = _parse_address(named)
    if address is not None or excepted is not None:
        return address == excepted
    suffix = named[1:] if named.startswith("*.") else named
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix.removeprefix('.')}"))


def _split(entry: str) -> tuple[str, str]:
    """Return host and port of an entry; "" for no port. A bare IPv6 address has none."""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not entry.startswith("[")) or entry.endswith("]"):
        return entry.strip("[]"), ""
    return host.strip("[]"), port


def _parse_address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
