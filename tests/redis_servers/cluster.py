"""A Redis Cluster: three masters that share the slots, with optional replicas."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from tests.redis_servers.inventory import RedisProgram
from tests.redis_servers.server import RedisServer
from tests.redis_servers.waiting import wait_until

_MASTERS = 3
_NODE_TIMEOUT_MS = 1000
_KEYS_MAX = 1000


class RedisCluster:
    """Use it as a context manager. `node_options` are for one node each; `replicas` copy the masters in turn."""

    def __init__(
        self,
        program: RedisProgram,
        folder: Path,
        *options: str,
        replicas: int = 0,
        node_options: Sequence[Sequence[str]] = (),
        **access: Any,
    ) -> None:
        common_options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(_NODE_TIMEOUT_MS))
        common_options = (*common_options, "--repl-diskless-sync-delay", "0", *options)
        self.nodes = [
            RedisServer(program, folder / f"node-{number}", *common_options, *more, **access)
            for number, more in enumerate(node_options or [()] * (_MASTERS + replicas))
        ]
        """The initial masters, then the replicas."""
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:_MASTERS])

    def owner(self, tag: str) -> RedisServer:
        """Return the node that serves the slot of a tag, according to the first running node."""
        slot = key_slot(f"{{{tag}}}".encode())
        running = next(node for node in self.nodes if node.alive)
        for first, last, (_, port, *_), *_ in _slots(running):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"no node serves slot {slot}")

    def begin_move(self, tag: str, to: RedisServer) -> None:
        """Begin to migrate the slot of a tag: new keys are created in `to`, existing ones are still in the owner."""
        slot, owner = key_slot(f"{{{tag}}}".encode()), self.owner(tag)
        to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(owner))
        owner.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to))

    def end_move(self, tag: str, to: RedisServer) -> None:
        """Migrate the remaining keys of the slot, and assign it to `to` on all nodes."""
        slot, owner = key_slot(f"{{{tag}}}".encode()), self.owner(tag)
        for key in owner.cli("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_MAX):
            owner.cli("MIGRATE", "127.0.0.1", to.port, key, 0, 5000)
        for node in (to, owner, *self.nodes):
            if node.alive and node.cli("INFO", "replication")["role"] == "master":
                node.cli("CLUSTER", "SETSLOT", slot, "NODE", _id(to))

    def wait_for_failover(self, former: RedisServer) -> None:
        """Wait until all slots are served by nodes other than `former`."""

        def is_served() -> bool:
            return all(
                _state(node) == "ok" and former.port not in {master[1] for _, _, master, *_ in _slots(node)}
                for node in self.nodes
                if node.alive
            )

        wait_until(is_served, "the Cluster has another master")

    def empty(self) -> None:
        """Delete all data and scripts."""
        for node in self.nodes[:_MASTERS]:
            node.cli("FLUSHALL")
            node.cli("SCRIPT", "FLUSH")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number, node in enumerate(self.nodes, start=1):
                stack.enter_context(node)
                node.cli("CLUSTER", "SET-CONFIG-EPOCH", number)
            for number, node in enumerate(self.nodes[:_MASTERS]):
                share = range(
                    number * REDIS_CLUSTER_HASH_SLOTS // _MASTERS, (number + 1) * REDIS_CLUSTER_HASH_SLOTS // _MASTERS
                )
                node.cli("CLUSTER", "ADDSLOTS", *share)
            wait_until(self._meet, "all nodes know each other")
            pairs = [(node, self.nodes[number % _MASTERS]) for number, node in enumerate(self.nodes[_MASTERS:])]
            for node, master in pairs:
                node.cli("CLUSTER", "REPLICATE", _id(master))
            for node in self.nodes:
                wait_until(lambda node=node: _state(node) == "ok", "the Cluster is up")
            for node, master in pairs:
                wait_until(lambda node=node: _is_synced(node), "the replica has its master's data")
                wait_until(lambda node=node, master=master: _has_replica(master, node), "the master knows its replica")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _meet(self) -> bool:
        """Send CLUSTER MEET to each node that knows no other: a slow node drops a handshake that times out."""
        first, *others = self.nodes
        for node in others:
            if int(node.cli("CLUSTER INFO")["cluster_known_nodes"]) == 1:
                node.cli("CLUSTER", "MEET", "127.0.0.1", first.port)
        return all(self._knows_all(node) for node in self.nodes)

    def _knows_all(self, node: RedisServer) -> bool:
        info = node.cli("CLUSTER INFO")
        return int(info["cluster_known_nodes"]) == len(self.nodes) and int(info["cluster_size"]) == _MASTERS


def _state(node: RedisServer) -> str:
    return str(node.cli("CLUSTER INFO")["cluster_state"])


def _id(node: RedisServer) -> str:
    return bytes(node.cli("CLUSTER", "MYID")).decode()


def _is_synced(node: RedisServer) -> bool:
    return bool(node.cli("INFO", "replication").get("master_link_status") == "up")


def _has_replica(master: RedisServer, node: RedisServer) -> bool:
    """Whether a master knows its replica: until then it refuses to be replaced by it."""
    return any(_id(node).encode() in line for line in master.cli("CLUSTER", "REPLICAS", _id(master)))


def _slots(node: RedisServer) -> Any:
    with node.client() as client:
        client.response_callbacks.pop("CLUSTER SLOTS", None)
        return client.execute_command("CLUSTER SLOTS")
