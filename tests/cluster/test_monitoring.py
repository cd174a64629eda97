"""Rules and dashboards in a real Prometheus, which scrapes server, controller and kube-apiserver with real faults."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.server import Server
from tests.harness.identity import Pki
from tests.harness.server_process import Files
from tests.monitoring.dashboards import queries
from tests.monitoring.operator_crds import operator_crds
from tests.monitoring.prometheus_server import RATE_INTERVAL, SCRAPE_SECONDS, PrometheusServer
from tests.monitoring.rule_files import FOLDER, alerts, rules
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS

pytest_plugins = ("tests.redis_servers.fixtures",)

SERVICES = {
    "mon-busy": """\
pool: prod
  placement: {schedulerName: podgate-scheduler}
  quota: {windows: [{window: 1h, hard: {pods: 1000}}], standing: {hard: {pods: 500}}}
  breaker: {outcomes: {source: Pushed, reporters: [edge]}, errorRate: {}}""",
    "mon-full": """\
quota: {windows: [{window: 1h, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m, countBy: Request}, openFor: 1h}""",
    "mon-waits": "quota: {windows: [{window: 1h, hard: {pods: 1}}], whenExceeded: Queue, queue: {maxPods: 1000}}",
    "mon-tried": "modes: {placement: Warn}\n  placement: {nodeSelector: {disk: ssd}}",
    "mon-shares": """\
placement: {shares: {variants: [{name: spot, weight: 1, nodeSelector: {capacity: spot}}, {name: any, weight: 1}]}}""",
    "mon-strict": "failureMode: Closed\n  placement: {schedulerName: podgate-scheduler}",
}
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {name: prod, windows: [{window: 1h, hard: {pods: 2000}}]}
services:
""" + "".join(f"- name: {name}\n  match: {{namespaces: [{name}]}}\n  {rules}\n" for name, rules in SERVICES.items())

FAULTS = {
    "PodgateBreakerOpen",
    "PodgateQuotaDenies",
    "PodgateDenials",
    "PodgateOutcomesRefused",
    "PodgateAuthenticationFails",
    "PodgateHandshakesRefused",
    "PodgateServerNotTrusted",
    "PodgateFailOpen",
    "PodgateCallsFail",
    "PodgateQueueStalled",
    "PodgateCallerExpires",  # the certificates of the tests live for a day or less
}
"""The alerts whose expressions hold after the faults."""
SLOWNESS = {
    *("PodgateLatencyBudgetBurn", "PodgateCallsSlow"),
    *("PodgateStoreSlow", "PodgateStoreAway", "PodgateStoreFallback"),
}
"""Those that depend on the speed of the machine."""
DASHBOARDS = ("fleet", "service", "slo")
"""That of the extender is tested with a kube-scheduler: tests/scheduling/test_monitoring.py."""


@dataclass(frozen=True)
class Monitored:
    """An installation with its Prometheus."""

    running: ControllerFixture
    prometheus: PrometheusServer

    @property
    def server(self) -> Server:
        return self.running.installation.servers[0]

    def list_holding(self) -> set[str]:
        """Return the alerts whose expressions hold now, whatever their `for`."""
        return {rule["alert"] for rule in alerts() if self.prometheus.query(rule["expr"])}


@pytest.fixture(scope="module")
def monitored(
    plane: ControlPlane, identities: Identities, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Monitored]:
    store = shared_redis("redis-8.2").url
    with controller_fixture(plane, identities, POLICY, list(SERVICES), store) as running:
        [server], [controller] = running.installation.servers, running.installation.controllers
        jobs = [
            {"job_name": "podgate", "static_configs": [{"targets": [server.plain]}]},
            {"job_name": "podgate-controller", "static_configs": [{"targets": [controller.plain]}]},
            _kube_apiserver(plane),
        ]
        prometheus = PrometheusServer(plane.processes, jobs)
        prometheus.start()
        try:
            plane.wait(lambda: prometheus.is_scraping(len(jobs)), "Prometheus to scrape", "prometheus")
            yield Monitored(running, prometheus)
        finally:
            prometheus.stop()


def _kube_apiserver(plane: ControlPlane) -> dict[str, Any]:
    certificate, key = plane.authority.user("monitoring", "system:monitoring")
    return {
        "job_name": "apiserver",
        "scheme": "https",
        "tls_config": {
            "ca_file": str(plane.authority.certificate),
            "cert_file": str(certificate),
            "key_file": str(key),
        },
        "scrape_interval": "3s",  # a scrape has thousands of series
        "static_configs": [{"targets": [f"127.0.0.1:{plane.ports.apiserver}"]}],
        "metric_relabel_configs": [
            {"source_labels": ["__name__"], "regex": "apiserver_admission_webhook_.+", "action": "keep"}
        ],
    }


def call(server: Server, context: ssl.SSLContext, path: str, token: str, body: bytes) -> None:
    """Call a server; a rejected call is as good as another."""
    host, _, port = server.admission.rpartition(":")
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    with suppress(OSError, http.client.HTTPException):
        connection.request("POST", path, body, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        connection.getresponse().read()
    connection.close()


def cause_faults(monitored: Monitored, files: Files, stranger: Pki) -> None:
    """Fill a quota, open a breaker, push outcomes, and call with each kind of wrong credentials."""
    installation, server = monitored.running.installation, monitored.server
    for namespace in SERVICES:
        for _ in range(6 if namespace == "mon-full" else 2):
            installation.create_pod(namespace)
    reporter, token = files.pki.context(files.pki.client("prober")), files.other.token(client_id="edge")
    for service in ("mon-busy", "mon-full"):
        call(
            server,
            reporter,
            "/v1/outcomes",
            token,
            json.dumps([{"service": service, "ok": True, "latency": 0.1}]).encode(),
        )
    call(server, files.pki.context(files.caller), "/mutate", "no token", b"{}")
    call(server, files.pki.context(stranger.client()), "/mutate", "", b"{}")
    call(server, stranger.context(), "/mutate", "", b"{}")


def fail_calls(monitored: Monitored) -> None:
    """Create Pods while kube-apiserver cannot reach the server."""
    installation = monitored.running.installation
    installation.load_balancer.targets = []
    installation.load_balancer.cut()
    try:
        opened = installation.create_pod("mon-busy")[0]
        closed = installation.create_pod("mon-strict")[0]
    finally:
        installation.route()
    assert (opened, closed) == (201, 500)


def test_real_faults_fire_their_alerts_and_fill_every_panel(
    monitored: Monitored, identities: Identities, tmp_path: Path
) -> None:
    prometheus = monitored.prometheus
    assert monitored.list_holding() <= SLOWNESS | {"PodgateCallerExpires"}, "nothing has happened yet"
    stranger = Pki.create(tmp_path / "stranger", "stranger-ca")

    def find_silent() -> set[str]:
        """Return what has no data yet: increase() needs a second fault after a scrape."""
        cause_faults(monitored, identities.files, stranger)
        fail_calls(monitored)
        recorded = {rule["record"] for rule in rules() if "record" in rule}
        empty = {place for place, query in queries(*DASHBOARDS) if not has_data(prometheus, query)}
        return (FAULTS - monitored.list_holding()) | {name for name in recorded if not prometheus.query(name)} | empty

    missing = find_silent()
    deadline = time.monotonic() + HANG_SECONDS
    while missing and time.monotonic() < deadline:
        time.sleep(SCRAPE_SECONDS)
        missing = find_silent()
    assert missing == set()
    assert monitored.list_holding() - SLOWNESS == FAULTS
    at_once = {"PodgateFailOpen", "PodgateCallsFail", "PodgateOutcomesRefused"}

    def are_firing() -> bool:
        firing = {sample["metric"]["alertname"] for sample in prometheus.query('ALERTS{alertstate="firing"}')}
        return firing >= at_once

    monitored.running.plane.wait(are_firing, "the alerts without `for` to fire", "prometheus")
    assert {(rule["name"], rule.get("lastError")) for rule in prometheus.rules() if rule["health"] != "ok"} == set()


def has_data(prometheus: PrometheusServer, query: str) -> bool:
    """Whether a query returns series; for a dashboard of one service, those of any."""
    expression = query.replace("$__rate_interval", RATE_INTERVAL)
    services = SERVICES if "$service" in expression else [""]
    return any(prometheus.query(expression.replace("$service", service)) for service in services)


def test_api_server_accepts_the_objects_of_the_operator(plane: ControlPlane) -> None:
    definitions = operator_crds()
    for path in definitions:
        plane.kubectl("apply", "--server-side", "-f", str(path))
    flags = ("--server-side", "--dry-run=server", "--validate=strict")
    plane.kubectl("create", "namespace", NAMESPACE, check=False)
    try:
        for path in definitions:
            plane.kubectl("wait", "--for=condition=Established", "-f", str(path), "--timeout=60s")
        applied = plane.kubectl("apply", "-k", str(FOLDER), *flags).stdout.splitlines()
    finally:
        for path in definitions:
            plane.kubectl("delete", "-f", str(path), "--wait=false")
    kinds = {line.partition("/")[0].partition(".")[0] for line in applied}
    assert kinds == {"configmap", "podmonitor", "prometheusrule", "servicemonitor"}
