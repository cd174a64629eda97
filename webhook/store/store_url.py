"""Where the counters' store is, and what opens it, as a user says it. A password is never part of what is shown."""

import ipaddress
import re
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

MEMORY = "memory"
_REMEDY = "write memory, or the URL of a Redis, such as redis://redis.podgate-system.svc:6379/0"
_ESCAPE = "in a name or password, write %2F for /, %3F for ?, %23 for #, %40 for @ and %3A for :"
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_PORT_MAX = 65535
_DATABASE = re.compile(r"\d{1,5}")


class RedisTopology(Enum):
    """How the servers stand: alone, under Sentinels that know the primary, or as a Cluster."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_PORTS = {RedisTopology.SERVER: 6379, RedisTopology.SENTINEL: 26379, RedisTopology.CLUSTER: 6379}
_FORMS = {
    RedisTopology.SERVER: "redis://HOST:PORT/DB",
    RedisTopology.SENTINEL: "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB",
    RedisTopology.CLUSTER: "redis+cluster://HOST:PORT,HOST:PORT",
}
_SCHEMES = {
    scheme + (f"+{layout.value}" if layout is not RedisTopology.SERVER else ""): (layout, scheme == "rediss")
    for scheme in ("redis", "rediss")
    for layout in RedisTopology
}


class RedisAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUrl:
    """A Redis: its servers (or Sentinels, or some of a Cluster), or the path of a socket."""

    layout: RedisTopology = RedisTopology.SERVER
    addresses: tuple[RedisAddress, ...] = ()
    path: str = ""
    tls: bool = False
    database: int = 0
    service: str = ""
    """The name under which Sentinels know the primary."""
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> "StoreUrl":
        """Read redis://, rediss:// (TLS), unix://, and both of the first with +sentinel or +cluster.

        ValueError says what to write, without the text itself.
        """
        scheme, separator, rest = text.partition("://")
        if not separator or (scheme != "unix" and scheme not in _SCHEMES):
            raise ValueError(_REMEDY)
        if "#" in rest:
            raise ValueError(_ESCAPE)
        rest, _, query = rest.partition("?")
        authority, _, path = rest.partition("/")
        if "@" in query or (scheme != "unix" and "@" in path):
            raise ValueError(_ESCAPE)
        user, _, hosts = authority.rpartition("@")
        name, _, password = user.partition(":")
        if scheme == "unix":
            found = _socket(hosts, path, query)
        elif query:
            raise ValueError(f"write {_FORMS[_SCHEMES[scheme][0]]}: nothing behind a ?")
        else:
            found = _servers(*_SCHEMES[scheme], hosts, path)
        return replace(found, username=unquote(name), password=unquote(password))


def _socket(hosts: str, path: str, query: str) -> StoreUrl:
    database = query.removeprefix("db=") or "0"
    if hosts or not path or not _DATABASE.fullmatch(database):
        raise ValueError("write unix:///PATH/OF/THE/SOCKET, and ?db=NUMBER for another database than 0")
    return StoreUrl(path=f"/{path}", database=int(database))


def _servers(layout: RedisTopology, tls: bool, hosts: str, path: str) -> StoreUrl:  # noqa: FBT001  as the table of schemes has it
    form = f"write {_FORMS[layout]}" if not tls else f"write {_FORMS[layout].replace('redis', 'rediss', 1)}"
    addresses = tuple(_address(host, _PORTS[layout], form) for host in hosts.split(","))
    service, database = "", path
    if layout is RedisTopology.SENTINEL:
        service, _, database = path.partition("/")
        if not service:
            raise ValueError(f"{form}: SERVICE is the name under which the Sentinels know the primary")
    database = database.removesuffix("/") or "0"
    if layout is RedisTopology.SERVER and len(addresses) > 1:
        raise ValueError(f"{form}; several servers are a Cluster (redis+cluster) or Sentinels (redis+sentinel)")
    if layout is RedisTopology.CLUSTER and database != "0":
        raise ValueError(f"{form}: a Cluster has one database only")
    if not _DATABASE.fullmatch(database):
        raise ValueError(f"{form}: DB is a number")
    return StoreUrl(
        layout=layout,
        addresses=addresses,
        tls=tls,
        database=int(database),
        service=unquote(service),
    )


def _address(text: str, default_port: int, form: str) -> RedisAddress:
    if text.startswith("[") or text.count(":") > 1:
        host, closed, port = text.removeprefix("[").partition("]")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            closed = ""
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"{form}; an IPv6 address stands in brackets, such as [::1]:6379")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
        if not _HOST.fullmatch(host):
            raise ValueError(form)
    if port and not (port.isascii() and port.isdecimal() and len(port) <= len(str(_PORT_MAX))):
        raise ValueError(f"{form}: PORT is a number")
    number = int(port or default_port)
    if not 0 < number <= _PORT_MAX:
        raise ValueError(f"{form}: PORT is from 1 to {_PORT_MAX}")
    return RedisAddress(host, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFiles:
    """Files that are read for every new connection, so that a rotated one is taken up. None: there is none of it.

    Each is the setting of that name behind `--store-`.
    """

    username_file: Path | None = None
    password_file: Path | None = None
    sentinel_username_file: Path | None = None
    sentinel_password_file: Path | None = None
    ca: Path | None = None
    """CAs that sign the servers' certificates, PEM, instead of those of the system."""
    cert: Path | None = None
    """The certificate that a server may ask for, and its key; PEM."""
    key: Path | None = None

    def mistakes(self, store: str) -> dict[str, str]:
        """Return which of them do not go with that store, a valid one, and what to do about each."""
        if store == MEMORY:
            return dict.fromkeys(self._given(), "is for a Redis: give its URL as --store, or leave this out")
        url = StoreUrl.parse(store)
        return {name: wrong for name in self._given() if (wrong := self._wrong(name, url))}

    def _given(self) -> list[str]:
        return [item.name for item in fields(self) if getattr(self, item.name) is not None]

    def _wrong(self, name: str, url: StoreUrl) -> str:
        if name in {"ca", "cert", "key"} and not url.tls:
            return "is for TLS: write rediss instead of redis in --store, or leave this out"
        if name.startswith("sentinel_") and url.layout is not RedisTopology.SENTINEL:
            return f"is for Sentinels: write --store {_FORMS[RedisTopology.SENTINEL]}, or leave this out"
        in_url = {"username_file": url.username, "password_file": url.password}
        if in_url.get(name):
            return f"--store has a {name.removesuffix('_file')}, too: leave out one of them"
        needed = {"cert": "key", "key": "cert", "sentinel_username_file": "sentinel_password_file"}.get(name)
        if needed and getattr(self, needed) is None:
            return f"goes with --store-{needed.replace('_', '-')}: give both"
        return ""
