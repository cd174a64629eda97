"""Installation as the facts show it: its record, its server's address, its certificates and its arguments."""

from collections import Counter
from urllib.parse import urlsplit

from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.checks.objects import ContainerSpecObject, ReplicasObject
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.record import InstallationRecord
from webhook.core.installation.ways import FILES, REDIS, REDUCED

SERVER, _CONTROLLER = "podgate", "podgate-controller"
_PORT, _CERTIFICATES = 443, "--certificates"
USUAL = (NAMESPACE, SERVER, _PORT)


def record_of(facts: ClusterFacts) -> InstallationRecord | None:
    """Return the options of `podgate install`; None for an installation by hand or by the chart."""
    found = facts.record_map
    return None if found is None else InstallationRecord.from_config_map({"data": found.data or {}})


def manager_of(facts: ClusterFacts) -> str:
    """Return who manages the certificates."""
    record = record_of(facts)
    return (record.certificates if record is not None else find_argument(facts, _CERTIFICATES)) or FILES


def has_controller(facts: ClusterFacts) -> bool:
    record = record_of(facts)
    return find_deployment(facts, _CONTROLLER) is not None or (record is not None and record.mode == REDIS)


def is_of_chart(facts: ClusterFacts) -> bool:
    return any(workload.labels.get("app.kubernetes.io/managed-by") == "Helm" for workload in facts.deployments)


def is_reduced(facts: ClusterFacts) -> bool:
    record = record_of(facts)
    return record.mode == REDUCED if record is not None else facts.status.get("clientIdentity") == REDUCED


def is_at_target(facts: ClusterFacts, webhook: Json) -> bool:
    """Return whether a webhook calls the address at which this installation has its server."""
    client = webhook["clientConfig"]
    url, service = find_address(facts)
    if url:
        return str(client.get("url") or "").startswith(f"{url}/") or client.get("url") == url
    return _read_reference(client.get("service") or {}) == service


def find_address(facts: ClusterFacts) -> tuple[str, tuple[str, str, int]]:
    """Return the URL of a server outside the cluster, or "" and the Service.

    Without a record it is the address that most of the live webhooks call, if that exists.
    """
    record, usual = record_of(facts), USUAL
    if record is not None and record.server_url:
        return record.server_url, usual
    clients = [
        webhook["clientConfig"]
        for configuration in facts.webhooks.values()
        for webhook in configuration.get("webhooks") or ()
    ]
    urls = Counter(_strip_path(str(client["url"])) for client in clients if client.get("url"))
    services = Counter(_read_reference(client["service"]) for client in clients if client.get("service"))
    if record is None and urls.total() > services.total():
        return urls.most_common(1)[0][0], usual
    return "", next((reference for reference, _ in services.most_common() if _exists(facts, reference)), usual)


def _exists(facts: ClusterFacts, reference: tuple[str, str, int]) -> bool:
    """Return whether a Service has the port, and Pods of a Deployment, or an address of its own."""
    namespace, name, port = reference
    if namespace != NAMESPACE:
        return True
    found = next((candidate for candidate in facts.services if candidate.name == name), None)
    if found is None:
        return False
    if found.spec.type == "ExternalName":
        return True
    selector = found.spec.selector or {}
    templates = [workload.spec.template.metadata.labels or {} for workload in facts.deployments]
    has_pods = not selector or any(selector.items() <= labels.items() for labels in templates)
    return has_pods and any(listed.port == port for listed in found.spec.ports or ())


def _read_reference(service: Json) -> tuple[str, str, int]:
    return str(service.get("namespace", "")), str(service.get("name", "")), int(service.get("port", _PORT))


def _strip_path(url: str) -> str:
    """Return a URL without its path, which is a secret in reduced mode."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def find_argument(facts: ClusterFacts, flag: str) -> str:
    """Return an argument of the servers, or of the controller; "" if neither has it."""
    found = (find_deployment(facts, SERVER), find_deployment(facts, _CONTROLLER))
    return next(filter(None, (workload.find_argument(flag) for workload in found if workload is not None)), "")


def list_containers(facts: ClusterFacts, name: str) -> tuple[ContainerSpecObject, ...]:
    found = find_deployment(facts, name)
    return () if found is None else tuple(found.spec.template.spec.containers or ())


def find_deployment(facts: ClusterFacts, name: str) -> ReplicasObject | None:
    return next((candidate for candidate in facts.deployments if candidate.name == name), None)
