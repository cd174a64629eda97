"""Installation record: a ConfigMap with the version and the options of an installation."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from webhook.core.document.configmap import INSTALLATION, NAMESPACE
from webhook.core.installation.objects import Json, ObjectReference

SCHEDULER = "podgate-scheduler"
RECORD = ObjectReference("v1", "ConfigMap", INSTALLATION, NAMESPACE)


@dataclass(frozen=True, slots=True)
class InstallationRecord:
    """The options of an installation. The URLs are those of a server outside the cluster, "" otherwise."""

    version: str
    mode: str
    certificates: str
    server_url: str = ""
    status_url: str = ""
    scheduler: str = ""
    """SCHEDULER if the second kube-scheduler and its extender are installed too."""
    team_labels: str = ""
    """The labels of Namespaces that only admins change, separated by commas."""

    @classmethod
    def from_config_map(cls, config_map: Json) -> "InstallationRecord":
        data: Mapping[str, str] = config_map.get("data") or {}
        return cls(**{item.name: data.get(_name_key(item.name), "") for item in fields(cls)})

    def build_config_map(self) -> Json:
        data = {_name_key(item.name): getattr(self, item.name) for item in fields(self)}
        return {
            "apiVersion": RECORD.api_version,
            "kind": RECORD.kind,
            "metadata": {"name": INSTALLATION, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "podgate"}},
            "data": {key: text for key, text in data.items() if text},
        }

    def find_conflict(self, wanted: "InstallationRecord") -> tuple[str, str, str] | None:
        """Return key, present and wanted value of the first option that an installation cannot change in place."""
        for name in ("mode", "certificates"):
            present, asked = getattr(self, name), getattr(wanted, name)
            if present and present != asked:
                return name, present, asked
        if self.scheduler and not wanted.scheduler:
            return "scheduler", self.scheduler, "none"
        if self.team_labels and not wanted.team_labels:
            return _name_key("team_labels"), self.team_labels, "none"
        if bool(self.server_url) != bool(wanted.server_url):
            inside = "in the cluster"
            return _name_key("server_url"), self.server_url or inside, wanted.server_url or inside
        return None


def _name_key(name: str) -> str:
    return {"server_url": "serverURL", "status_url": "statusURL", "team_labels": "teamLabels"}.get(name, name)
