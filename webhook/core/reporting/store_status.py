"""Status of a store: its kind and error, its servers, and where in them counters are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A Redis server: its address in a Cluster, what it says of itself ("" for nothing), and the time it took."""

    name: str
    version: str
    eviction_policy: str
    latency_us: int
    run_id: str = ""
    """By which a process of Redis is known, whatever its address is called."""
    append_only: bool | None = None
    """Whether it writes each change to its append-only file; None if it does not say."""
    save: str | None = None
    """When it saves snapshots, as its `save` says; None: not known, or not asked for because of the file."""


@dataclass(frozen=True, slots=True)
class StoreServers:
    """The servers of a store; the error if they did not tell."""

    servers: Sequence[StoreServer] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where in a Redis counters are: the name of the cluster in their keys, and the number of the database."""

    cluster: str = ""
    database: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The kind of store, its error ("" for none), and the rules that apply to services meanwhile."""

    kind: str
    error: str = ""
    mode: str = ""
    servers: StoreServers = StoreServers()
    place: StorePlace = StorePlace()


def place_document(store: StoreStatus) -> dict[str, Any]:
    """Return where counters are, by which processes are compared."""
    return {
        "cluster": store.place.cluster or None,
        "database": store.place.database,
        "servers": [
            {
                "name": one.name or None,
                "version": one.version or None,
                "evictionPolicy": one.eviction_policy or None,
                "latencySeconds": one.latency_us / 1_000_000,
                "runId": one.run_id or None,
                "appendOnly": one.append_only,
                "save": one.save,
            }
            for one in store.servers.servers
        ],
        "serversError": store.servers.error or None,
    }
