"""Options of `podgate install` for the way to run Podgate."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options.durations import parse_base_url
from webhook.core.document.formats import find_fault
from webhook.core.installation import ways
from webhook.core.installation.kustomization import build_folder, build_objects
from webhook.core.installation.plan import InstallPlan, select_outside
from webhook.core.installation.record import SCHEDULER, InstallationRecord
from webhook.core.webhook_configurations import ClientConfig
from webhook.errors import UserError
from webhook.ports.store_url import MEMORY, StoreUrl
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.redaction import mask

if TYPE_CHECKING:
    from webhook.operations.call_proof import InstallProofs
    from webhook.operations.installer import InstallProgress, InstallTerms

_ADMISSION_PORT, _PLAIN_PORT = 8443, 8081
_URL = "https://HOST:PORT"
_FROM_DAEMON = "Run a DaemonSet that writes kube-apiserver's credentials on control plane nodes."

_SCHEDULER = "Also install a second kube-scheduler and its extender: docs/scheduling.md."
_TEAM_LABEL = "Let only admins change this label of Namespaces, by which teams have quotas: docs/policy.md#teams."
_SCHEDULER_IMAGE = f"Image of that scheduler.  [default: {ways.SCHEDULER_IMAGE}, of the cluster's version]"


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """The way to run Podgate, as given."""

    store: str
    certificates: str | None
    is_reduced: bool
    server_url: str | None
    status_url: str | None
    pki: Path
    image: str | None
    replicas: int | None
    writes_node_files: bool
    has_scheduler: bool
    scheduler_image: str | None
    team_labels: tuple[str, ...]

    async def install(
        self, where: Kubeconfig, policy: str | None, terms: "InstallTerms", progress: "InstallProgress"
    ) -> "InstallProofs | None":
        """Install with these options; UserError for options that do not fit together."""
        self._check_store()
        if self.server_url is not None:
            return await self._install_outside(self.server_url, where, policy, terms, progress)
        return await self._install_in_cluster(where, policy, terms, progress)

    async def _install_outside(
        self,
        server_url: str,
        where: Kubeconfig,
        policy: str | None,
        terms: "InstallTerms",
        progress: "InstallProgress",
    ) -> "InstallProofs | None":
        from webhook.operations import outside_server, pki_folder  # noqa: PLC0415  load slowly

        self._check_outside()
        address = parse_base_url("--server-url", server_url)
        host, port = address.hostname or "", address.port or 443
        plain_url = (self.status_url or f"http://{_format_host(host)}:{_PLAIN_PORT}").rstrip("/")
        plain_port = parse_base_url("--status-url", plain_url, "http").port or 80
        mode = self._choose_mode()
        record = InstallationRecord(
            *(version("podgate"), mode, ways.FILES, server_url.rstrip("/"), plain_url),
            team_labels=self._join_team_labels(),
        )
        plan = self._build_plan(record, policy)

        def prepare() -> outside_server.OutsideServer:
            issued = pki_folder.issue_missing(self.pki, host, is_dry=terms.is_dry)
            for file in issued:
                progress.on_object(file, "issued")
            client = ClientConfig(server_url, pki_folder.read_ca_bundle(self.pki))
            command, renewed = self._build_serve_command(port, plain_port), pki_folder.is_only_token(issued)
            return outside_server.OutsideServer(client, plain_url, command, is_token_renewed=renewed)

        return await outside_server.install_outside(where, plan, prepare, terms, progress)

    async def _install_in_cluster(
        self, where: Kubeconfig, policy: str | None, terms: "InstallTerms", progress: "InstallProgress"
    ) -> "InstallProofs | None":
        from webhook.operations import cluster_server  # noqa: PLC0415  loads slowly

        if self.status_url is not None:
            raise UserError(
                "--status-url: is for a server outside the cluster", "give --server-url too, or leave it out"
            )
        if self.scheduler_image is not None and not self.has_scheduler:
            raise UserError("--scheduler-image: no scheduler is installed", "give --with-scheduler too")
        certificates = self.certificates or (ways.FILES if self.is_reduced else ways.OWN)
        scheduler = SCHEDULER if self.has_scheduler else ""
        record = InstallationRecord(
            *(version("podgate"), self._choose_mode(), certificates),
            scheduler=scheduler,
            team_labels=self._join_team_labels(),
        )
        plan = self._build_plan(record, policy)
        servers = cluster_server.ClusterServers(where, certificates, self.pki, self.is_reduced)
        return await cluster_server.install_in_cluster(plan, servers, terms, progress)

    def _build_plan(self, record: InstallationRecord, policy: str | None) -> InstallPlan:
        from webhook.operations import shipped_manifests  # noqa: PLC0415  loads slowly

        files = shipped_manifests.read_manifest_files()
        extras = {"has_scheduler": self.has_scheduler, "has_team_labels": bool(self.team_labels)}
        way = ways.build_way(record.mode, record.certificates, **extras)
        if way is None:
            remedy = "reduced mode has counters in memory, and certificates that you manage: leave the others out"
            raise UserError(f"--reduced: not with --certificates {record.certificates}", remedy)
        documents = ways.set_team_labels(build_objects(files, way), self.team_labels)
        image = ways.find_image(documents)
        if self.writes_node_files:
            issuer = "cluster" if record.certificates == ways.CERT_MANAGER else "own"
            documents += ways.set_token_issuer(build_folder(files, "apiserver"), issuer)
        if record.server_url:
            documents = list(select_outside(documents))
        store = self.store if record.mode == ways.REDIS else None
        scheduler_image = self.scheduler_image or ways.SCHEDULER_IMAGE
        documents = ways.apply_choices(
            documents, store=store, image=self.image, replicas=self.replicas, scheduler_image=scheduler_image
        )
        first = policy or shipped_manifests.read_example_policy()
        return InstallPlan(record, tuple(documents), first, policy is not None, image)

    def _join_team_labels(self) -> str:
        for key in self.team_labels:
            if (fault := find_fault(key, "label-key")) is not None:
                raise UserError(f"--team-label {key!r}: {fault.reason}", fault.remedy)
        return ",".join(dict.fromkeys(self.team_labels))

    def _choose_mode(self) -> str:
        if self.is_reduced:
            return ways.REDUCED
        return ways.MEMORY if self.store == MEMORY else ways.REDIS

    def _check_store(self) -> None:
        if self.store == MEMORY:
            if (self.replicas or 1) > 1:
                remedy = "give --store the URL of a Redis that the servers share, or --replicas 1"
                raise UserError(f"--replicas {self.replicas}: counters in memory are one server's", remedy)
            return
        if self.is_reduced:
            raise UserError(f"--store {mask(self.store)!r}: not with --reduced", "leave one of the two out")
        try:
            url = StoreUrl.parse(self.store)
        except ValueError as error:
            raise UserError(f"--store {mask(self.store)!r}", str(error)) from None
        if url.password:
            remedy = "leave it out: the chart (store.credentials) and overlays of your own mount it from a Secret"
            raise UserError(f"--store {mask(self.store)!r}: everybody who reads Pods could read the password", remedy)

    def _check_outside(self) -> None:
        """Reject options that are for servers in the cluster."""
        given = {
            "--certificates": self.certificates not in {None, ways.FILES},
            "--reduced": self.is_reduced,
            "--image": self.image is not None,
            "--replicas": self.replicas is not None,
            "--apiserver-files": self.writes_node_files,
            "--with-scheduler": self.has_scheduler,
            "--scheduler-image": self.scheduler_image is not None,
        }
        for flag, is_given in given.items():
            if is_given:
                raise UserError(f"{flag}: not with --server-url, where no server is in the cluster", "leave it out")

    def _build_serve_command(self, port: int, plain_port: int) -> str:
        """Return the command that starts the server, without options that have their default."""
        options = [f"--listen 0.0.0.0:{port}"] if port != _ADMISSION_PORT else []
        options += [f"--plain-listen 0.0.0.0:{plain_port}"] if plain_port != _PLAIN_PORT else []
        options += [f"--store {shlex.quote(self.store)}"] if self.store != MEMORY else []
        return " ".join(("podgate serve --pki", shlex.quote(str(self.pki)), *options))


def installation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the way to run Podgate, passed as `options`."""

    @click.option(
        "--store", default=MEMORY, show_default=True, metavar="memory|redis://...", help="Where the counters are."
    )
    @click.option(
        "--certificates",
        type=click.Choice(ways.CERTIFICATES),
        help="Manager of the certificates: you (in --pki), Podgate itself, or cert-manager."
        "  [default: own; with --server-url and --reduced: files]",
    )
    @click.option(
        "--reduced",
        "is_reduced",
        is_flag=True,
        help="Accept callers without credentials; read docs/reduced-mode.md first.",
    )
    @click.option(
        "--server-url", metavar=_URL, help="Address of a server outside the cluster, instead of servers in it."
    )
    @click.option(
        "--status-url", metavar="http://HOST:PORT", help="Its plain port.  [default: the same host, port 8081]"
    )
    @click.option(
        "--pki",
        type=click.Path(path_type=Path),
        default="pki",
        show_default=True,
        help="Folder of certificates that you manage; missing ones are issued.",
    )
    @click.option("--image", help="Image of the servers.  [default: that of the manifests]")
    @click.option("--replicas", type=click.IntRange(1), help="Number of servers.  [default: 1; 2 with Redis]")
    @click.option("--apiserver-files", "writes_node_files", is_flag=True, help=_FROM_DAEMON)
    @click.option("--with-scheduler", "has_scheduler", is_flag=True, help=_SCHEDULER)
    @click.option("--scheduler-image", metavar="IMAGE", help=_SCHEDULER_IMAGE)
    @click.option("--team-label", "team_labels", multiple=True, metavar="KEY", help=_TEAM_LABEL)
    @wraps(command)
    def run(**given: Any) -> None:
        options = InstallOptions(**{item.name: given.pop(item.name) for item in fields(InstallOptions)})
        command(options=options, **given)

    return run


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
