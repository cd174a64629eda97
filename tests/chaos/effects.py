"""The effects of all kinds of faults: on processes, links, clocks and Redis here, others in modules of their own."""

import shutil
import signal
from collections.abc import Mapping

from tests.chaos import clocks, cluster_effects, etcd_effects
from tests.chaos.effect import Build, Effect
from tests.chaos.etcd_effects import require_healthy, spare_majority
from tests.chaos.history import PlannedFault
from tests.chaos.lab import Lab
from tests.chaos.links import Trouble
from tests.redis_servers import RedisServer
from tests.redis_servers.waiting import wait_until

_MEMORY_BYTES = 1 << 20
"""Less than an empty Redis uses: each write that needs memory is refused."""
_FILES = "appendonlydir"


def _kill(lab: Lab, fault: PlannedFault) -> Effect:
    part = lab.parts[fault.parts[0]]
    return Effect(spare_majority(lab, part, part.kill), part.start)


def _pause(lab: Lab, fault: PlannedFault) -> Effect:
    part = lab.parts[fault.parts[0]]

    def proceed() -> None:
        if part.process.is_alive():
            part.send(signal.SIGCONT)
        require_healthy(lab, part.name)

    return Effect(spare_majority(lab, part, lambda: part.send(signal.SIGSTOP)), proceed)


def _restart(lab: Lab, fault: PlannedFault) -> Effect:
    part = lab.parts[fault.parts[0]]
    return Effect(spare_majority(lab, part, part.restart), part.start)


def _disturb(lab: Lab, fault: PlannedFault, **trouble: bool) -> Effect:
    link = lab.links[">".join(fault.parts)]
    return Effect(lambda: link.disturb(Trouble(**trouble, **fault.details)), link.heal)


def _forget_connections(lab: Lab, fault: PlannedFault) -> Effect:
    link = lab.links[">".join(fault.parts)]
    return Effect(link.forget_connections, link.heal)


def _reset(lab: Lab, fault: PlannedFault) -> Effect:
    return Effect(lab.links[">".join(fault.parts)].cut)


def _step_clock(lab: Lab, fault: PlannedFault) -> Effect:
    clock = lab.parts[fault.parts[0]].clock
    assert clock is not None, f"{fault.parts[0]} has no clock of its own"
    return Effect(lambda: clocks.step(clock, fault.details["step_seconds"]), lambda: clocks.step(clock, 0))


def _fill_memory(lab: Lab, fault: PlannedFault) -> Effect:
    server = find_redis(lab, fault.parts[0])

    def limit(maximum_bytes: int) -> None:
        server.cli("CONFIG", "SET", "maxmemory", maximum_bytes)

    return Effect(lambda: limit(_MEMORY_BYTES), lambda: limit(0))


def _fill_disk(lab: Lab, fault: PlannedFault) -> Effect:
    disks, server = lab.disks, find_redis(lab, fault.parts[0])
    assert disks is not None, f"{fault.parts[0]} has no disk of its own"

    def heal() -> None:
        """Make room, and rewrite the file: with the gap that a short write may leave in it Redis does not start."""
        disks.clear(server.folder.name)
        server.cli("BGREWRITEAOF")
        wait_until(lambda: not server.cli("INFO", "persistence")["aof_rewrite_in_progress"], "the file is rewritten")

    return Effect(lambda: disks.fill(server.folder.name), heal)


def _flush_scripts(lab: Lab, fault: PlannedFault) -> Effect:
    return Effect(lambda: find_redis(lab, fault.parts[0]).cli("SCRIPT", "FLUSH"))


def _flush(lab: Lab, fault: PlannedFault) -> Effect:
    def begin() -> Mapping[str, str]:
        server = lab.redis.choose_primary(fault.number)
        server.cli("FLUSHALL")
        return lab.tell_found(server)

    return Effect(begin)


def _fail_over(lab: Lab, fault: PlannedFault) -> Effect:
    return Effect(lambda: lab.tell_found(lab.redis.fail_over(fault.number)))


def _restore_snapshot(lab: Lab, fault: PlannedFault) -> Effect:
    """Keep the files of the primary; at the end it starts with them, perhaps before the Sentinels have noticed."""
    kept_of: list[RedisServer] = []

    def begin() -> Mapping[str, str]:
        server = lab.redis.choose_primary(fault.number)
        kept = server.folder.with_name(f"{server.folder.name}-kept")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(lab.find_data(server) / _FILES, kept)
        kept_of.append(server)
        return lab.tell_found(server)

    def heal() -> None:
        for server in kept_of:
            part = lab.parts[lab.form.stores[lab.redis.servers.index(server)]]
            if part.process.is_alive():
                part.kill()
            files = lab.find_data(server) / _FILES
            shutil.rmtree(files, ignore_errors=True)
            shutil.copytree(server.folder.with_name(f"{server.folder.name}-kept"), files)
            part.start()

    return Effect(begin, heal)


def find_redis(lab: Lab, name: str) -> RedisServer:
    return lab.redis.servers[lab.form.stores.index(name)]


BUILDS: Mapping[str, Build] = {
    "kill": _kill,
    "pause": _pause,
    "restart": _restart,
    "delay": _disturb,
    "loss": _disturb,
    "cut": lambda lab, fault: _disturb(lab, fault, holds_requests=True, holds_answers=True),
    "cut-requests": lambda lab, fault: _disturb(lab, fault, holds_requests=True),
    "cut-answers": lambda lab, fault: _disturb(lab, fault, holds_answers=True),
    "half-open": _forget_connections,
    "refuse": lambda lab, fault: _disturb(lab, fault, refuses=True),
    "reset": _reset,
    "clock-step": _step_clock,
    "redis-memory-full": _fill_memory,
    "redis-disk-full": _fill_disk,
    "redis-failover": _fail_over,
    "redis-flush": _flush,
    "redis-script-flush": _flush_scripts,
    "redis-old-snapshot": _restore_snapshot,
    **cluster_effects.BUILDS,
    **etcd_effects.BUILDS,
}
"""By the kind of `fault_kinds`."""
