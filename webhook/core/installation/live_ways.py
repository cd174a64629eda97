"""Live ways: the way of a live installation, by its objects, and the command that repeats it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from webhook.core.installation import ways
from webhook.core.installation.objects import Json
from webhook.core.installation.ownership import is_of_leader
from webhook.core.installation.record import SCHEDULER, InstallationRecord

_REDUCED, _STORE, _CERTIFICATES = "--reduced-path-file=", "--store=", "--certificates="
_CERT_MANAGER = "cert-manager.io/certificate-name"
_REPLICAS = {ways.REDIS: 2}
"""Number of servers in the manifests of a mode, if it is not one."""


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """Objects of an installation that show its way; None for absent objects."""

    server: Json | None = None
    controller: Json | None = None
    scheduler: Json | None = None
    certificate: Json | None = None
    """The Secret with the serving certificate."""
    webhooks: Json | None = None

    def find_way(self) -> InstallationRecord | None:
        """Return the way that the objects show; None if there are none."""
        if self.server is None:
            return self._find_way_without_server()
        arguments = [*_list_arguments(self.server), *_list_arguments(self.controller)]
        mode = ways.REDIS if self.find_store() else ways.MEMORY
        if any(argument.startswith(_REDUCED) for argument in arguments):
            mode = ways.REDUCED
        scheduler = SCHEDULER if self.scheduler is not None else ""
        return InstallationRecord("", mode, self._find_certificates(), scheduler=scheduler)

    def find_store(self) -> str:
        """Return the URL of the store; "" for counters in memory."""
        found = _find_value(_list_arguments(self.server), _STORE)
        return "" if found == ways.MEMORY else found

    def list_options(self, record: InstallationRecord, image: str) -> list[str]:
        """Return the options of `install` for a way; `image` is the image that needs no option."""
        if record.server_url:
            status = ["--status-url", record.status_url] if record.status_url else []
            return ["--server-url", record.server_url, *status, "--pki", "pki", *_list_team_labels(record)]
        found = ["--reduced"] if record.mode == ways.REDUCED else []
        found += ["--store", self.find_store() or "redis://HOST:6379/0"] if record.mode == ways.REDIS else []
        usual = ways.FILES if record.mode == ways.REDUCED else ways.OWN
        found += ["--certificates", record.certificates] if record.certificates not in {"", usual} else []
        found += ["--pki", "pki"] if record.certificates == ways.FILES else []
        found += ["--with-scheduler"] if record.scheduler else []
        found += _list_team_labels(record)
        if self.server is not None:
            [container, *_] = self.server["spec"]["template"]["spec"]["containers"]
            found += ["--image", container["image"]] if container["image"] != image else []
            replicas = self.server["spec"].get("replicas", 1)
            is_usual = replicas in {0, _REPLICAS.get(record.mode, 1)}
            found += [] if is_usual else ["--replicas", str(replicas)]
        return found

    def format_command(self, record: InstallationRecord, image: str, *more: str) -> str:
        """Return the command that repeats a way."""
        return shlex.join(["podgate", "install", *self.list_options(record, image), *more])

    def _find_way_without_server(self) -> InstallationRecord | None:
        """Return the way of webhooks and certificates alone: the server is outside the cluster, or has been deleted."""
        for webhook in (self.webhooks or {}).get("webhooks", ()):
            url = urlsplit(webhook["clientConfig"].get("url", ""))
            if url.scheme:
                return InstallationRecord("", "", "", f"{url.scheme}://{url.netloc}")
        if self.certificate is None and self.webhooks is None:
            return None
        return InstallationRecord("", "", self._find_certificates() if self.certificate is not None else "")

    def _find_certificates(self) -> str:
        """Return who manages the certificates, by the Secret, or else by the servers' arguments."""
        if self.certificate is not None:
            if is_of_leader(self.certificate):
                return ways.OWN
            annotations = self.certificate["metadata"].get("annotations") or {}
            return ways.CERT_MANAGER if _CERT_MANAGER in annotations else ways.FILES
        found = _find_value([*_list_arguments(self.server), *_list_arguments(self.controller)], _CERTIFICATES)
        return found if found in {ways.OWN, ways.CERT_MANAGER} else ways.FILES


def _list_team_labels(record: InstallationRecord) -> list[str]:
    return [word for key in record.team_labels.split(",") if key for word in ("--team-label", key)]


def _list_arguments(deployment: Json | None) -> Iterator[str]:
    if deployment is not None:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            yield from container.get("args") or ()


def _find_value(arguments: "Iterator[str] | list[str]", flag: str) -> str:
    return next((argument.removeprefix(flag) for argument in arguments if argument.startswith(flag)), "")
