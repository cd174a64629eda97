"""Gathering of the facts for `podgate check`: objects of the cluster, a server's status, and Pods with dryRun."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.app.scheduling.extender_ports import open_extenders
from webhook.commands.clients.status_client import parse_status
from webhook.core.checks import ClusterFacts
from webhook.core.checks.calls import is_conclusive, probes_of
from webhook.core.checks.facts import ProbeFact
from webhook.core.checks.rights import list_expected_rights
from webhook.core.checks.webhooks import webhooks_of
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.probe import PodProbe
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.reporting.node_document import NodeDocument
from webhook.core.reporting.status import CONTROLLER
from webhook.errors import UserError
from webhook.operations.server_discovery import FoundServer, NoServerError, ServerLocation, open_server
from webhook.operations.shipped_manifests import read_manifest_files

CONTROLLER_APP = "podgate-controller"
PLAIN_PORT = 8081

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.kubernetes.cluster_facts import Reading


async def gather_facts(where: ServerLocation, extender_url: str | None = None) -> ClusterFacts:
    """Return the facts about an installation, read with a kubeconfig; UserError if its API server does not answer."""
    from webhook.adapters.kubernetes import cluster_facts, connect  # noqa: PLC0415  their library takes long to load

    async with AsyncExitStack() as stack:
        client = await connect(where.kubeconfig)
        stack.push_async_callback(client.close)
        try:
            kube_version, clock_us = await cluster_facts.read_version(client)
        except cluster_facts.ApiError as error:
            remedy = f"check the user in {where.kubeconfig}"
            if isinstance(error, cluster_facts.UnreachedError):
                remedy = "see whether this machine reaches it, or name another cluster: --kubeconfig, --context"
            raise UserError(f"{client.configuration.host}: {error}", remedy) from None
        at_us = time.time_ns() // 1000
        reading, found = await asyncio.gather(cluster_facts.read_objects(client), _find_server(where, stack))
        await _read_status(reading, found)
        begun = ClusterFacts(at_us, version("podgate"), kubernetes=kube_version, api_clock_us=clock_us)
        facts = _update_facts(replace(begun, context=where.kubeconfig.context or ""), reading)
        await _read_secrets(client, reading, facts)
        await asyncio.gather(
            _probe(client, reading, facts, found.server),
            _read_rights(client, reading, facts),
            _read_extenders(reading, facts, where, extender_url),
            _read_processes(client, reading, facts),
        )
        return _update_facts(facts, reading)


def _update_facts(facts: ClusterFacts, reading: "Reading") -> ClusterFacts:
    return replace(facts, unread=dict(reading.unread), **reading.values)


@dataclass(frozen=True, slots=True)
class _Discovery:
    """The server that answers, or why there is none."""

    server: FoundServer | None
    error: str = ""


async def _find_server(where: ServerLocation, stack: AsyncExitStack) -> _Discovery:
    try:
        return _Discovery(await stack.enter_async_context(open_server(where)))
    except NoServerError as error:
        return _Discovery(None, f"{error}: {'; '.join(error.tried)}")
    except UserError as error:
        return _Discovery(None, str(error))


async def _read_status(reading: "Reading", found: _Discovery) -> None:
    if found.server is None:
        reading.unread["status"] = found.error
        return
    try:
        document = parse_status(await found.server.get("/status"), found.server.name)
    except UserError as error:
        reading.unread["status"] = str(error)
        return
    if document.get("role") == CONTROLLER:
        reading.unread["status"] = f"{found.server.name} is a controller"
    else:
        reading.values |= {"status": document, "server": found.server.name}


async def _read_secrets(client: "ApiClient", reading: "Reading", facts: ClusterFacts) -> None:
    from webhook.adapters.kubernetes import cluster_facts  # noqa: PLC0415  as above

    try:
        data = {name: await cluster_facts.read_secret(client, name) for name in cluster_facts.SECRETS}
    except cluster_facts.ApiError as error:
        reading.on_creation_failed("secrets", f"get secrets in {NAMESPACE}", error)
        data = {}
    present = {name: secret for name, secret in data.items() if secret is not None}
    secrets = {name: cluster_facts.list_secret_facts(name, secret) for name, secret in present.items()}
    chain = cluster_facts.parse_chain(present.get(cluster_facts.SERVING, {}))
    for url in _list_urls(facts) if not chain else ():
        try:
            chain = await asyncio.to_thread(cluster_facts.fetch_chain, url)
        except OSError:
            continue  # it may be reachable only from the API server
        secrets[cluster_facts.SERVING] = (cluster_facts.make_served_fact(url, chain),)
        reading.unread.pop("secrets", None)
        break
    reading.values["secrets"] = secrets
    reading.values["scheduler_cas"] = cluster_facts.list_scheduler_cas(present)
    if "secrets" in reading.unread:
        reading.unread["scheduler_cas"] = reading.unread["secrets"]
    trust = cluster_facts.list_trust_facts(webhooks_of(facts), chain)
    reading.values["trust"] = trust
    if not chain and not any(fact.error for fact in trust):
        reading.unread["trust"] = reading.unread.get("secrets", f"there is no Secret {cluster_facts.SERVING}")


def _list_urls(facts: ClusterFacts) -> list[str]:
    """Return the URL that the webhooks have in common, for a server outside the cluster."""
    urls = (webhook["clientConfig"].get("url") for _, webhook in webhooks_of(facts))
    return [url for url in urls if url][:1]


async def _read_rights(client: "ApiClient", reading: "Reading", facts: ClusterFacts) -> None:
    from webhook.adapters.kubernetes import cluster_facts  # noqa: PLC0415  as above

    try:
        reading.values["rights"] = await cluster_facts.review_rights(client, list_expected_rights(_list_roles(), facts))
    except cluster_facts.ApiError as error:
        reading.on_creation_failed("rights", "create subjectaccessreviews.authorization.k8s.io", error)


async def _read_extenders(reading: "Reading", facts: ClusterFacts, where: ServerLocation, url: str | None) -> None:
    """Read the nodes of each extender that answers, if the policy needs one."""
    if not facts.scheduling_services:
        return
    try:
        async with open_extenders(url, where.kubeconfig) as extenders:
            pages = await extenders.read("/api/v1/nodes")
        found = {name: msgspec.json.decode(page, type=NodeDocument) for name, page in pages.items()}
    except (UserError, *UNREADABLE_JSON) as error:
        reading.unread["extenders"] = str(error)
    else:
        reading.values["extenders"] = {name: document.nodes for name, document in found.items()}
        reading.values["extender_unread"] = {name: document.unread for name, document in found.items()}


async def _read_processes(client: "ApiClient", reading: "Reading", facts: ClusterFacts) -> None:
    """Read the status of each ready server and controller in the cluster."""
    from webhook.adapters.kubernetes.api.server_pods import PodPorts  # noqa: PLC0415  as above

    found, silent = dict[str, Any](), dict[str, str]()

    async def ask(ports: PodPorts, pod: str) -> None:
        try:
            found[pod] = parse_status(await ports.get(pod, "/status"), pod)
        except UserError as error:
            silent[pod] = str(error)

    try:
        of_apps = [PodPorts(client, app, PLAIN_PORT) for app in ("podgate", CONTROLLER_APP) if facts.pods]
        pods = [(ports, pod) for ports in of_apps for pod in await ports.list_ready()]
        await asyncio.gather(*(ask(ports, pod) for ports, pod in pods))
    except UserError as error:
        reading.unread["processes"] = str(error)
    reading.values |= {"processes": found, "silent": silent}


def _list_roles() -> dict[str, list[dict[str, Any]]]:
    """Return the documents of the manifests that define and grant rights, by path."""
    rbac = {
        path: [document for document in found if document.get("apiVersion") == "rbac.authorization.k8s.io/v1"]
        for path, found in read_manifest_files().items()
    }
    return {path: found for path, found in rbac.items() if found}


async def _probe(client: "ApiClient", reading: "Reading", facts: ClusterFacts, server: FoundServer | None) -> None:
    pods = probes_of(facts)
    if not pods:
        none = "no service of a valid policy owns Pods in an existing namespace"
        reason = reading.unread.get("policy_map") or reading.unread.get("namespaces") or none
        reading.unread |= dict.fromkeys(("probes", "fail_open", "refused"), reason)
        return
    before = await _read_counters(client, reading, server)
    probes = await _run_probes(client, pods)
    after = await _read_counters(client, reading, server)
    reading.values["fail_open"] = after.fail_open - before.fail_open
    reading.values["refused"] = after.refused - before.refused
    if before.process != after.process:
        reading.unread["refused"] = "several servers answer in turn, and each counts its own calls"
    conclusive = [probe for probe in probes if not probe.message or is_conclusive(probe.message)]
    reading.values["probes"] = conclusive
    if not conclusive:
        reading.unread["probes"] = f"a Pod with dryRun in {probes[0].namespace} is refused: {probes[0].message}"


async def _run_probes(client: "ApiClient", pods: tuple[PodProbe, ...]) -> list[ProbeFact]:
    from webhook.adapters.kubernetes import cluster_facts  # noqa: PLC0415  as above

    return await cluster_facts.probe_pods(client, pods)


@dataclass(frozen=True, slots=True)
class _Counters:
    """Counters of the API server, and of a server's process."""

    fail_open: Counter[str]
    refused: Counter[str]
    process: bytes


async def _read_counters(client: "ApiClient", reading: "Reading", server: FoundServer | None) -> _Counters:
    from webhook.adapters.kubernetes import cluster_facts  # noqa: PLC0415  as above

    fail_open: Counter[str] = Counter()
    metrics = b""
    try:
        fail_open = await cluster_facts.count_fail_open(client)
    except cluster_facts.ApiError as error:
        reading.on_creation_failed("fail_open", "get /metrics of the API server", error)
    try:
        metrics = await server.get("/metrics") if server is not None else b""
    except UserError as error:
        reading.unread["refused"] = str(error)
    if server is None:
        reading.unread["refused"] = reading.unread.get("status", "no server answers")
    return _Counters(fail_open, cluster_facts.count_refused(metrics), cluster_facts.identify_process(metrics))
