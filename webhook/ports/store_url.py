"""StoreUrl: the address of the counter store and the files that open it, as given in the settings.

No message and no repr shows a password.
"""

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
    """A single server, a primary with Sentinels, or a Redis Cluster."""

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
    scheme + (f"+{topology.value}" if topology is not RedisTopology.SERVER else ""): (topology, scheme == "rediss")
    for scheme in ("redis", "rediss")
    for topology in RedisTopology
}


class RedisAddress(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUrl:
    """A Redis: its server, its Sentinels, some nodes of a Cluster, or the path of a Unix socket."""

    topology: RedisTopology = RedisTopology.SERVER
    addresses: tuple[RedisAddress, ...] = ()
    path: str = ""
    tls: bool = False
    database: int = 0
    service: str = ""
    """The name under which Sentinels know the primary."""
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def only_server(self) -> str:
        """The `HOST:PORT` of a single server; "" if the server depends on the call or has no address."""
        return str(self.addresses[0]) if self.topology is RedisTopology.SERVER and self.addresses else ""

    @classmethod
    def parse(cls, text: str) -> "StoreUrl":
        """Parse redis://, rediss:// (TLS), unix://, and the first two with +sentinel or +cluster.

        ValueError says what to write instead; it does not repeat the text, which may hold a password.
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
            found = _parse_socket(hosts, path, query)
        elif query:
            raise ValueError(f"write {_FORMS[_SCHEMES[scheme][0]]}: nothing behind a ?")
        else:
            found = _parse_servers(*_SCHEMES[scheme], hosts, path)
        return replace(found, username=unquote(name), password=unquote(password))


def _parse_socket(hosts: str, path: str, query: str) -> StoreUrl:
    database = query.removeprefix("db=") or "0"
    if hosts or not path or not _DATABASE.fullmatch(database):
        raise ValueError("write unix:///PATH/OF/THE/SOCKET, and ?db=NUMBER for another database than 0")
    return StoreUrl(path=f"/{path}", database=int(database))


def _parse_servers(topology: RedisTopology, tls: bool, hosts: str, path: str) -> StoreUrl:  # noqa: FBT001  as the table of schemes has it
    form = f"write {_FORMS[topology]}" if not tls else f"write {_FORMS[topology].replace('redis', 'rediss', 1)}"
    addresses = tuple(_parse_address(host, _PORTS[topology], form) for host in hosts.split(","))
    service, database = "", path
    if topology is RedisTopology.SENTINEL:
        service, _, database = path.partition("/")
        if not service:
            raise ValueError(f"{form}: SERVICE is the name under which the Sentinels know the primary")
    database = database.removesuffix("/") or "0"
    if topology is RedisTopology.SERVER and len(addresses) > 1:
        raise ValueError(f"{form}; several servers are a Cluster (redis+cluster) or Sentinels (redis+sentinel)")
    if topology is RedisTopology.CLUSTER and database != "0":
        raise ValueError(f"{form}: a Cluster has one database only")
    if not _DATABASE.fullmatch(database):
        raise ValueError(f"{form}: DB is a number")
    return StoreUrl(
        topology=topology,
        addresses=addresses,
        tls=tls,
        database=int(database),
        service=unquote(service),
    )


def _parse_address(text: str, default_port: int, form: str) -> RedisAddress:
    if text.startswith("[") or text.count(":") > 1:
        host, closed, port = text.removeprefix("[").partition("]")
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            closed = ""
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"{form}; write an IPv6 address in brackets, such as [::1]:6379")
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
    """Files that are read for each new connection, so that rotated ones are used. None: not given.

    Each is the setting of that name after `--store-`.
    """

    username_file: Path | None = None
    password_file: Path | None = None
    sentinel_username_file: Path | None = None
    sentinel_password_file: Path | None = None
    ca: Path | None = None
    """CA certificates for the servers, PEM, instead of the system's."""
    cert: Path | None = None
    """Client certificate and its key, PEM."""
    key: Path | None = None

    def find_mistakes(self, store: str) -> dict[str, str]:
        """Return a remedy for each file that does not fit `store`, which must be valid."""
        if store == MEMORY:
            return dict.fromkeys(self._list_given(), "is for a Redis: give its URL as --store, or leave this out")
        url = StoreUrl.parse(store)
        return {name: wrong for name in self._list_given() if (wrong := self._find_mistake(name, url))}

    def _list_given(self) -> list[str]:
        return [item.name for item in fields(self) if getattr(self, item.name) is not None]

    def _find_mistake(self, name: str, url: StoreUrl) -> str:
        if name in {"ca", "cert", "key"} and not url.tls:
            return "is for TLS: write rediss instead of redis in --store, or leave this out"
        if name.startswith("sentinel_") and url.topology is not RedisTopology.SENTINEL:
            return f"is for Sentinels: write --store {_FORMS[RedisTopology.SENTINEL]}, or leave this out"
        in_url = {"username_file": url.username, "password_file": url.password}
        if in_url.get(name):
            return f"--store has a {name.removesuffix('_file')}, too: leave out one of them"
        needed = {"cert": "key", "key": "cert", "sentinel_username_file": "sentinel_password_file"}.get(name)
        if needed and getattr(self, needed) is None:
            return f"goes with --store-{needed.replace('_', '-')}: give both"
        return ""
