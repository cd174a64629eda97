"""An installation on a real cluster whose servers, controllers and manifests are those of one release or another."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import PATIENT, Installation, lengthen_timeouts
from tests.cluster.readme_steps import Site
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.harness.revisions import ROOT, check_out, find_last_release

PRE_STOP_SECONDS = 1.0
_SERVING = ("--drain", "5s", "--store-deadline", "20s", *PATIENT)
_PORT = "- --plain-listen=0.0.0.0:8081\n"
_CHOICES = {
    "replicas: 1 ": "replicas: 2 ",
    "maxUnavailable: 1": "maxUnavailable: 0",
    _PORT: f"{_PORT}        - --store=redis://redis.podgate-system.svc:6379/0\n",
}
"""What an operator of the former release changed in its Deployment to have servers that share a Redis."""


@dataclass(frozen=True)
class Release:
    """The code of a release, and the flags by which its processes run as by its manifests."""

    tree: Path
    program: Sequence[str | Path]
    python: str | Path
    flags: Sequence[str] = ()
    """Of servers and controllers, beside those of any release."""

    def run(self, plane: ControlPlane, *arguments: str | Path) -> str:
        """Run its command line as the administrator of a cluster; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "webhook", *arguments],
            cwd=self.tree,
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig), "NO_COLOR": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{arguments}: {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout


def find_former_release() -> Release:
    """Return the release before this tree."""
    tree = check_out(find_last_release()[1])
    main = f"import sys; sys.path.insert(0, {str(tree)!r}); from webhook.cli import main; main()"
    return Release(tree, ("-c", main), Path(sys.executable))


def find_this_release() -> Release:
    return Release(ROOT, SHORT_INTERVALS, sys.executable, ("--webhook-configurations", "keep"))


@dataclass(frozen=True)
class Operator:
    """A person with the manifests of both releases, changed for a Redis, who runs the steps of docs/upgrade.md.

    The Pods of the Deployments are kwok's: the processes that answer are replaced beside them, in the same order.
    """

    installation: Installation
    folder: Path
    store: str
    former: Release
    this: Release

    @property
    def plane(self) -> ControlPlane:
        return self.installation.plane

    # --- manifests ---

    @cached_property
    def former_site(self) -> Site:
        """The former manifests as their README says: Redis' URL, two servers, and the own policy."""
        site = self._make_site("former", self.former)
        deployment = site.folder / "manifests" / "30-deployment.yaml"
        text = deployment.read_text()
        for default, chosen in _CHOICES.items():
            assert default in text
            text = text.replace(default, chosen)
        deployment.write_text(text)
        self.write_policy(site, self.installation.policy)
        return site

    @cached_property
    def site(self) -> Site:
        """The manifests of this tree, whose overlay for Redis is applied."""
        return self._make_site("this", self.this)

    def _make_site(self, name: str, release: Release) -> Site:
        (folder := self.folder / name).mkdir()
        return Site(self.plane, folder, self.installation.load_balancer, release.tree / "manifests")

    def write_policy(self, site: Site, policy: str) -> None:
        """Put a policy into the file that the former kustomization applies."""
        metadata = {"name": "podgate-policy", "namespace": NAMESPACE}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": policy}}
        (site.folder / "manifests" / "20-policy.yaml").write_text(yaml.safe_dump(document))

    # --- processes ---

    def start_server(self, release: Release) -> Server:
        """Start a server of a release, and wait until it gets calls."""
        self._choose(release)
        server = self.installation.start_server("--store", self.store, *_SERVING, *release.flags)
        balancer = self.installation.load_balancer
        self.plane.wait(lambda: server.target in balancer.ready, f"{server.name} to be ready", server.name)
        return server

    def replace_server(self, release: Release, server: Server) -> Server:
        """Replace a server as a Deployment with `maxUnavailable: 0` does: it ends once the new one is ready."""
        started = self.start_server(release)
        self.installation.stop_server(server, pre_stop_seconds=PRE_STOP_SECONDS)
        return started

    def start_controller(self, release: Release) -> Server:
        """Start a controller in place of the one that runs, and wait until it leads and has listed all Pods."""
        for running in list(self.installation.controllers):
            self.installation.stop_controller(running)
        self._choose(release)
        return self.installation.launch_controller("--store", self.store, *release.flags)

    def _choose(self, release: Release) -> None:
        self.installation.program, self.installation.python = release.program, release.python

    # --- webhooks ---

    def render_webhooks(self, release: Release) -> None:
        """Apply the webhook configurations as the command of a release prints them for the live policy."""
        (path := self.folder / "policy.yaml").write_text(self.installation.read_stored("podgate-policy") or "")
        target = ("--service", f"{NAMESPACE}/podgate:{self.installation.load_balancer.port}")
        authority = ("--ca", self.installation.files.folder / "ca.crt")
        printed = release.run(self.plane, "policy", "webhooks", "--policy", path, *target, *authority, "-o", "json")
        self.plane.apply(*lengthen_timeouts(tuple(json.loads(printed)["items"])))


@contextmanager
def operate(
    plane: ControlPlane, identities: Identities, folder: Path, store: str, policy: str, namespaces: Sequence[str]
) -> Iterator[Operator]:
    """Return an operator without an installation; at the end stop all processes and remove the webhooks."""
    for namespace in namespaces:
        plane.create_namespace(namespace)
    installation = Installation(plane, identities.files, plane.load_balancers["good"], policy, namespaces)
    try:
        yield Operator(installation, folder, store, find_former_release(), find_this_release())
    finally:
        installation.stop()
        for namespace in namespaces:
            plane.empty_namespace(namespace)
