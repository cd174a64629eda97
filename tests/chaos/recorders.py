"""Recorders of a run: each looks at the parts once a second in a thread of its own, and goes on while they fail."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import redis

from tests.chaos.forms import CONTROLLERS, SERVERS
from tests.chaos.history import RedisSnapshot, Review, Status
from tests.chaos.lab import DECISIONS, Lab
from tests.chaos.record import Record
from tests.cluster.ledger_log import _SCRIPT

_ROUND_SECONDS = 1.0
_PAGE, _PAGES_MAX = 1000, 20
_SINCE = "20s"
"""Reviews are looked for so far back: a server may have been paused."""
_SOCKET_SECONDS = 2.0


class Recorders:
    """All of them, while it is entered. `catch_up` reads what is still to be had of reviews."""

    def __init__(self, lab: Lab, record: Record) -> None:
        self._lab = lab
        self._record = record
        self._is_over = threading.Event()
        rounds: dict[str, Callable[[], None]] = {
            **{f"status of {name}": lambda name=name: self._read_status(name) for name in (*SERVERS, *CONTROLLERS)},
            **{f"reviews of {name}": lambda name=name: self._read_reviews(name) for name in SERVERS},
            **{f"state of {name}": lambda name=name: self._read_redis(name) for name in lab.form.stores},
        }
        self._threads = [
            threading.Thread(target=self._repeat, args=(action,), name=name, daemon=True)
            for name, action in rounds.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def catch_up(self) -> None:
        """Read all reviews of the servers that are still there."""
        for name in SERVERS:
            self._read_reviews(name, since="")

    def _repeat(self, action: Callable[[], None]) -> None:
        while not self._is_over.wait(_ROUND_SECONDS):
            try:
                action()
            except (
                OSError,
                ValueError,
                http.client.HTTPException,
                redis.RedisError,
                StopIteration,
                KeyError,
                AssertionError,
            ):
                continue  # the part is down, or paused: the next round tells more

    def _read_status(self, name: str) -> None:
        document = json.loads(self._lab.read(name, "/status", timeout_seconds=_SOCKET_SECONDS))
        self._record.statuses.append(Status(time.time(), name, document))

    def _read_reviews(self, name: str, since: str = _SINCE) -> None:
        """Read pages, newest first, until one has nothing new."""
        before = ""
        for _ in range(_PAGES_MAX):
            query = f"limit={_PAGE}" + (f"&since={since}" if since else "") + (f"&before={before}" if before else "")
            page = json.loads(self._lab.read(name, f"/api/v1/decisions?{query}", DECISIONS))
            new = [record for record in page["decisions"] if record["id"] not in self._record.reviews]
            for record in new:
                self._record.reviews.setdefault(record["id"], build_review(name, record))
            before = page["next"] or ""
            if not new or not before:
                return

    def _read_redis(self, name: str) -> None:
        server = self._lab.redis.servers[self._lab.form.stores.index(name)]
        with server.client(socket_timeout=_SOCKET_SECONDS, single_connection_client=True) as client:
            information = client.info()
            if information["cluster_enabled"] and information["role"] == "slave":
                client.execute_command("READONLY")
            tags = sorted({key.decode().split("{")[1].split("}")[0] for key in client.scan_iter("podgate:{*:pod:*")})
            charges = {tag: _read_charges(client, tag) for tag in tags}
        snapshot = RedisSnapshot(
            at=time.time(),
            part=name,
            run_id=information["run_id"],
            role=information["role"],
            memory_bytes=information["used_memory"],
            keys=information.get("db0", {}).get("keys", 0),
            charges=charges,
        )
        self._record.redis.append(snapshot)


def _read_charges(client: redis.Redis, tag: str) -> Mapping[str, int]:
    found: Sequence[bytes] = client.execute_command("EVAL", _SCRIPT, 0, f"podgate:{{{tag}}}:v1:default:pod:*")
    return dict(zip((uid.decode() for uid in found[::2]), map(int, found[1::2]), strict=True))


def build_review(part: str, record: Mapping[str, Any]) -> Review:
    status, breaker = record.get("status", {}), record.get("breaker") or {}
    return Review(
        at=datetime.fromisoformat(record["at"]).timestamp(),
        part=part,
        replica=record["replica"],
        id=record["id"],
        half=record["half"],
        operation=record["operation"],
        sub_resource=record.get("subResource", ""),
        namespace=record["namespace"],
        name=record["name"],
        uid=record.get("uid", ""),
        user=record["user"],
        service=record.get("service", ""),
        decision=record["decision"],
        code=status.get("code", 0),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        policy=record.get("policy", ""),
        is_dry_run=record.get("dryRun", False),
        uncounted=record.get("uncounted", False),
        owner_uid=(record.get("owner") or {}).get("uid", ""),
        breaker_state=breaker.get("state", ""),
        breaker_generation=breaker.get("generation", 0),
        record=record,
        seen_at=time.time(),
    )
