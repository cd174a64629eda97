"""The laboratory of a run: all parts on loopback, and the links between them."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from tests.chaos import clocks, extended_scheduler
from tests.chaos.extended_scheduler import EXTENDERS, SCHEDULER, SchedulerFiles
from tests.chaos.forms import PODGATE, SERVERS, Form
from tests.chaos.history import FOUND
from tests.chaos.links import Link
from tests.chaos.parts import Part, PlaneProcess, RedisProcess
from tests.chaos.plane import ChaosPlane
from tests.chaos.policies import NAMESPACES, REPORTER
from tests.chaos.redis_program import write_program
from tests.chaos.shards import number_shards
from tests.chaos.small_disks import SmallDisks
from tests.chaos.stores import ClusterStore, SentinelStore, Store
from tests.cluster.admission_configuration import Caller, stand_in_service
from tests.cluster.background_loop import BackgroundLoop
from tests.cluster.identities import Identities
from tests.cluster.installation import (
    CERTIFICATES_RBAC,
    CONTROLLER_ACCOUNT,
    CONTROLLER_RBAC,
    CONTROLLER_RETRIES_RBAC,
    CONTROLLER_ROLLOUT_RBAC,
    CONTROLLER_WEBHOOKS_RBAC,
    MANIFESTS,
    RBAC,
    RETRIES_RBAC,
    ROLLOUT_RBAC,
    SERVICE_ACCOUNT,
    WEBHOOKS_RBAC,
)
from tests.cluster.kwok import NODES
from tests.cluster.load_balancer import Target
from tests.cluster.processes import find_free_ports
from tests.cluster.shares import NODES as NODES_OF_SHARES
from tests.redis_servers import RedisServer
from tests.redis_servers.inventory import program
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

REDIS = "redis-8.2"
STORE_DEADLINE, DRAIN = "1s", "1s"
_TIMEOUT_SECONDS = 5.0
_TOKEN_AGE_SECONDS, _TOKEN_SECONDS = 600, 6 * 3600
_PROGRAM = ("-P", Path(__file__).with_name("clocked_podgate.py"))
RIGHTS = (
    *(RBAC, WEBHOOKS_RBAC, RETRIES_RBAC, ROLLOUT_RBAC, CONTROLLER_RBAC, CONTROLLER_WEBHOOKS_RBAC),
    *(CONTROLLER_RETRIES_RBAC, CONTROLLER_ROLLOUT_RBAC, CERTIFICATES_RBAC, *extended_scheduler.RIGHTS),
)
_DEFINITIONS = (MANIFESTS / "base" / "05-servicestatus.yaml", *extended_scheduler.OBJECTS)

ADMISSION, PLAIN, DECISIONS = "listen", "plain-listen", "decision-listen"
"""Listeners, by the flags that name their addresses."""
_LISTENERS = {
    "server": (ADMISSION, PLAIN, DECISIONS),
    "controller": (PLAIN,),
    "extender": (ADMISSION, PLAIN, DECISIONS),
}
_ACCOUNTS = {"server": SERVICE_ACCOUNT, "controller": CONTROLLER_ACCOUNT, "extender": extended_scheduler.ACCOUNT}
_COMMANDS = {"server": "serve", "controller": "controller", "extender": "extender"}


class Lab:
    """Use it as a context manager. `folder` is for files that do not outlive the run."""

    def __init__(self, folder: Path, policy: str, form: Form) -> None:
        self.folder = folder
        self.form = form
        self._kinds = form.parts
        self.parts: dict[str, Part] = {}
        self.links: dict[str, Link] = {}
        self.addresses: dict[str, dict[str, int]] = {}
        """Ports of each part of Podgate by listener."""
        self.loop = BackgroundLoop("chaos")
        self.identities = Identities.create(_make_folder(folder / "identities"))
        self._issue_tokens()
        callers = {"good": self.identities.callers["good"], SCHEDULER: Caller()}
        self.plane = ChaosPlane(callers, self.loop, form.etcds)
        self.scheduler = SchedulerFiles(folder / "scheduler")
        store = ClusterStore if form.is_cluster else SentinelStore
        self.disks = SmallDisks(folder / "disks", store.FOLDERS) if form.has_small_disks else None
        self.redis: Store = store(write_program(program(REDIS), folder / "redis", self.disks), folder / "redis")
        self.policy = policy
        self._stack = ExitStack()

    def _issue_tokens(self) -> None:
        """Issue tokens that are valid also for a server whose clock is a minute off."""
        files, now = self.identities.files, time.time()
        times = {"now": now - _TOKEN_AGE_SECONDS, "exp": int(now + _TOKEN_SECONDS)}
        tokens = {
            "good": files.signer.token(**times),
            "reporter": files.other.token(**times, client_id=REPORTER),
        }
        for name, token in tokens.items():
            path = self.identities.callers[name].token
            assert path is not None
            path.write_text(token)

    # --- life ---

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.loop.close)
            stack.callback(self._close_links)
            stack.enter_context(self.plane)
            stack.enter_context(self.disks or nullcontext())
            stack.enter_context(self.redis)
            self._name_parts_of_others()
            self._prepare_cluster()
            self._start_podgate()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close_links(self) -> None:
        for link in self.links.values():
            link.close()

    def _name_parts_of_others(self) -> None:
        for name in self.plane.components:
            self._add_part(name, PlaneProcess(self.plane, name))
        for name, server in zip(self.form.stores, self.redis.servers, strict=True):
            self._add_part(name, RedisProcess(server))
            self.parts[name].clock = server.folder / "clock"
        for name, sentinel in zip(self.form.sentinels, self.redis.sentinels, strict=True):
            self._add_part(name, RedisProcess(sentinel))

    def _add_part(self, name: str, process: PlaneProcess | RedisProcess) -> None:
        self.parts[name] = Part(name, self._kinds[name], process)

    def _prepare_cluster(self) -> None:
        self.plane.apply(*stand_in_service())
        for path in (*_DEFINITIONS, *RIGHTS):
            self.plane.apply_file(path)
        for namespace in NAMESPACES:
            self.plane.create_namespace(namespace)
        self.plane.add_nodes(*NODES, *NODES_OF_SHARES)
        self.apply_policy(self.policy)

    def _start_podgate(self) -> None:
        for name in PODGATE:
            listeners = _LISTENERS[self._kinds[name]]
            self.addresses[name] = dict(zip(listeners, find_free_ports(len(listeners)), strict=True))
            command = self._build_command(name, self._kinds[name])
            self._add_part(name, PlaneProcess(self.plane, name, lambda command=command: command))
            self.parts[name].clock = self._find_clock(name)
            self.parts[name].process.start()
        self._balance("good", "kube-apiserver", SERVERS)
        self._balance(SCHEDULER, "kube-scheduler", EXTENDERS)
        command = self.scheduler.build_scheduler_command(self.plane, self.plane.load_balancers[SCHEDULER].port)
        self._add_part(SCHEDULER, PlaneProcess(self.plane, SCHEDULER, lambda: command))
        self.parts[SCHEDULER].process.start()
        for name in PODGATE:
            self.plane.wait(lambda name=name: self.is_ready(name), f"{name} to be ready", name)
        self.configure_webhooks(self.policy)

    # --- Podgate ---

    def _build_command(self, name: str, kind: str) -> Sequence[str | Path]:
        """Return the command line of a part of Podgate, which is the same at each start."""
        kubeconfig, ports = self.write_kubeconfig(name), self.addresses[name]
        listeners = [f"--{listener}=127.0.0.1:{port}" for listener, port in ports.items()]
        arguments: list[str | Path] = []
        if kind == "extender":
            arguments += self.scheduler.list_extender_flags()
        else:
            arguments.append(f"--store={self._open_store(name)}")
        if kind == "server":
            arguments = [*self.identities.files.arguments()[2:], *arguments]
            arguments += [f"--store-deadline={STORE_DEADLINE}", f"--drain={DRAIN}", "--log-sample=1"]
        clock = clocks.list_words(self._find_clock(name))
        own = [*arguments, *listeners, f"--kubeconfig={kubeconfig}"]
        return [*clock, sys.executable, *_PROGRAM, _COMMANDS[kind], *own]

    def _find_clock(self, name: str) -> Path:
        return self.plane.folder / f"{name}.clock"

    def _open_store(self, name: str) -> str:
        """Open the link of a part to all Redis and Sentinels; return the URL that leads through it."""
        return self.redis.open(self._add_link(f"{name}>redis"))

    def write_kubeconfig(self, name: str, token: str | None = None) -> Path:
        """Write the kubeconfig of a part, with a new token unless one is given."""
        link = f"{name}>kube-apiserver"
        if link not in self.links:
            self._add_link(link).open(self.plane.front.choose)
        account = _ACCOUNTS[self._kinds[name]]
        server = f"https://127.0.0.1:{self.links[link].ports[0]}"
        new = token or self.plane.create_token(account, "podgate-system")
        return self.plane.write_kubeconfig(account, token=new, server=server)

    def _add_link(self, name: str) -> Link:
        assert name in self.form.links
        return self.links.setdefault(name, Link(name, self.loop))

    def _balance(self, balancer: str, clients: str, names: Sequence[str]) -> None:
        """Let clients call each of these parts through a link of its own, if it is ready."""
        targets = []
        for name in names:
            link, ports = self._add_link(f"{clients}>{name}"), self.addresses[name]
            port = link.open(_lead_to(lambda ports=ports: ports[ADMISSION]))
            targets.append(Target(f"127.0.0.1:{port}", f"http://127.0.0.1:{ports[PLAIN]}/readyz"))
        self.plane.load_balancers[balancer].targets = targets

    def configure_webhooks(self, policy: str) -> None:
        """Apply the webhook configurations as the documents render them: with their own timeouts."""
        bundle = (self.identities.files.folder / "ca.crt").read_bytes()
        client = ClientConfig(ServiceReference(port=self.plane.load_balancers["good"].port), bundle)
        self.plane.apply(*render_configurations(load(policy.encode(), Purpose.SERVE).policy.policy, client))

    def apply_policy(self, policy: str) -> None:
        metadata = {"name": "podgate-policy", "namespace": "podgate-system"}
        self.plane.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": policy}}
        )

    def apply_rights(self) -> None:
        for rights in RIGHTS:
            self.plane.apply_file(rights)

    def tell_found(self, server: RedisServer) -> dict[str, str]:
        """Return the part that a Redis is, for the details of a fault that has looked for it."""
        return {FOUND: self.form.stores[self.redis.servers.index(server)]}

    def find_data(self, server: RedisServer) -> Path:
        """Return the folder of the data of a Redis."""
        return server.folder if self.disks is None else self.disks.find(server.folder.name)

    # --- what is seen from outside ---

    def read(self, name: str, path: str, listener: str = PLAIN, timeout_seconds: float = _TIMEOUT_SECONDS) -> bytes:
        """Return what a server or controller answers to a plain GET; OSError if it does not answer 200."""
        url = f"http://127.0.0.1:{self.addresses[name][listener]}{path}"
        with urlopen(url, timeout=timeout_seconds) as response:
            body: bytes = response.read()
        return body

    def is_ready(self, name: str) -> bool:
        try:
            self.read(name, "/readyz")
        except OSError:
            return False
        return True

    def read_status(self, name: str) -> dict[str, Any]:
        """Return `GET /status` of a server or controller; empty if it does not answer."""
        try:
            return dict(json.loads(self.read(name, "/status")))
        except (OSError, ValueError):
            return {}

    def describe_details(self) -> dict[str, Any]:
        """Return what differs from the defaults, for the plan."""
        return {
            "form": self.form.name,
            "store_deadline": STORE_DEADLINE,
            "drain": DRAIN,
            "intervals": "tests/cluster/short_intervals.py",
            "redis": f"{REDIS}, appendfsync everysec, {len(self.form.sentinels) or 'no'} Sentinels",
            **({"shards": number_shards(self.form.stores)} if self.form.is_cluster else {}),
            "etcd": f"{len(self.form.etcds)} members",
            "started_at": time.time(),
        }


def _lead_to(find_port: Callable[[], int]) -> Callable[[], Sequence[str]]:
    return lambda: [f"127.0.0.1:{find_port()}"]


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
