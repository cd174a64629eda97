"""A storm: gangs are created, members deleted, and processes killed, in an order that a seed decides."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.gangs import PLAIN, Gang, build_job, build_job_set, build_pod, build_replicated_job, list_replicated
from tests.cluster.pod_log import GROUP, INDEX, PodEvent, PodLog
from tests.cluster.recording_webhook import admit
from tests.cluster.refunds import another_webhook
from tests.redis_servers import RedisServer

_CALLERS = 4
_RETRY_SECONDS = 1.0
_RELEASE_SECONDS = 10.0
"""How long a kill waits for a release to begin."""
_DENIED = "Index 1 of this group is denied."


@dataclass
class Storm:
    """What happens, and when; times are seconds since the Unix epoch."""

    running: ControllerFixture
    redis: RedisServer
    log: PodLog
    gangs: Sequence[Gang]
    random: Random
    kills: list[tuple[float, float, str]] = field(default_factory=list)
    """When something was killed, since when it works again, and what it was."""
    deleted: list[tuple[float, str]] = field(default_factory=list)
    """Members that were deleted: when, and of which gang."""
    _is_over: threading.Event = field(default_factory=threading.Event)
    _numbers: dict[str, int] = field(default_factory=dict)

    def run(self, kills: Sequence[str], deletions: int, pause_seconds: float) -> None:
        """Do everything in a random order, with pauses, then wait until each gang has run."""
        denied = next(gang for gang in self.gangs if gang.kind == "Annotations")
        later = [*kills, *["deletion"] * deletions]
        actions: list[Gang | str] = [gang for gang in self.gangs if gang is not denied]
        for action in later:
            actions.insert(self.random.randrange(2, len(actions) + 1), action)
        with ThreadPoolExecutor(_CALLERS) as callers, ExitStack() as stack:
            stack.callback(self._is_over.set)
            stack.enter_context(denial := ExitStack())
            denial.enter_context(another_webhook(self.running, denied.namespace, self._build_denial(denied)))
            created = self._create(denied, callers)
            for number, action in enumerate(actions):
                if isinstance(action, Gang):
                    created += self._create(action, callers)
                else:
                    self._disturb(action, callers)
                if number == len(actions) * 2 // 3:
                    denial.close()
                time.sleep(self.random.uniform(0, pause_seconds))
            for future in created:
                future.result()

    # --- gangs ---

    def _create(self, gang: Gang, callers: ThreadPoolExecutor) -> list[Future[None]]:
        """Create a gang; the Pods of a plain one one after another, while other things happen."""
        if gang.kind in PLAIN:
            return [callers.submit(self._create_pod, gang, index) for index in range(gang.size)]
        if gang.kind == "JobSet":
            self.running.plane.apply(build_job_set(gang))
            path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{gang.namespace}/jobsets/{gang.name}"
            uid = self.running.plane.api.get(path)["metadata"]["uid"]
            for job, pods in list_replicated(gang):
                self.running.plane.apply(build_replicated_job(gang, job, pods, uid))
        else:
            self.running.plane.apply(build_job(gang, gang.name, gang.size))
        return []

    def _create_pod(self, gang: Gang, index: int) -> None:
        """Create a member until it is admitted: no server may answer, and another webhook may deny it."""
        number = self._numbers[gang.name] = self._numbers.get(gang.name, 0) + 1
        pod, path = build_pod(gang, index, f"{gang.name}-{number}"), f"/api/v1/namespaces/{gang.namespace}/pods"
        while not self._is_over.is_set():
            status, answer = self.running.plane.api.request("POST", path, pod)
            if status in {201, 409}:
                return
            # A server that begins between the two calls finds a Pod that no mutating call has rewritten.
            assert status in {400, 429, 500, 503, 504} or "MutationMissing" in str(answer), answer
            time.sleep(_RETRY_SECONDS)

    @staticmethod
    def _build_denial(gang: Gang) -> Callable[[str, bytes], Any]:
        async def deny(_: str, body: bytes) -> bytes:
            labels = json.loads(body)["request"]["object"]["metadata"]["labels"]
            review = json.loads(await admit("", body))
            review["response"]["allowed"] = (labels.get(GROUP), labels.get(INDEX)) != (gang.name, "1")
            review["response"]["status"] = {"message": _DENIED}
            return json.dumps(review).encode()

        return deny

    # --- troubles ---

    def _disturb(self, what: str, callers: ThreadPoolExecutor) -> None:
        at = time.time()
        match what:
            case "deletion":
                self._delete_member(callers)
                return
            case "controller":
                self._kill_leader()
            case "server":
                self._kill_server()
            case "redis":
                self.redis.kill()
                time.sleep(self.random.uniform(0.2, 3))
                self.redis.start()
        self.kills.append((at, time.time(), what))

    def _kill_leader(self) -> None:
        """Kill the leader, if possible while it releases a gang; another one is there, and takes over."""
        self._await_release()
        leader = self.running.leader() or self.running.installation.controllers[0]
        self.running.installation.stop_controller(leader, kill=True)
        self.running.start_controller()
        self.running.plane.wait(self.running.leader, "another leader")

    def _await_release(self) -> None:
        deadline, seen = time.monotonic() + _RELEASE_SECONDS, len(self.log.events)
        while time.monotonic() < deadline:
            if any(event.kind == "MODIFIED" and not event.gated for event in self.log.events[seen:]):
                time.sleep(self.random.uniform(0, 0.3))
                return
            time.sleep(0.02)

    def _kill_server(self) -> None:
        """Kill a server that gets calls: some of them fail, and new ones go to the other server."""
        installation = self.running.installation
        server = self.random.choice(installation.servers)
        self.running.plane.stop_component(server.name, kill=True)
        assert "Traceback" not in installation.log(server), installation.log(server)
        time.sleep(0.5)
        installation.servers.remove(server)
        installation.route()
        self.running.start_server()

    def _delete_member(self, callers: ThreadPoolExecutor) -> None:
        """Delete a waiting member; of a plain gang create it again, as its owner would."""
        waiting = [event for event in self.log.list_latest().values() if event.gated]
        if not waiting:
            return
        gone = self.random.choice(waiting)
        gang = next(gang for gang in self.gangs if gang.name == gone.group)
        self.running.plane.delete(f"/api/v1/namespaces/{gone.namespace}/pods/{gone.name}")
        self.deleted.append((time.time(), gang.name))
        if gang.kind in PLAIN:
            callers.submit(self._replace, gang, gone)

    def _replace(self, gang: Gang, gone: PodEvent) -> None:
        time.sleep(_RETRY_SECONDS)
        self._create_pod(gang, int(gone.index))
