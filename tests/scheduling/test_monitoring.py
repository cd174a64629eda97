"""Rules and the dashboard of the extender in a real Prometheus, which scrapes it while kube-scheduler asks it."""

from tests.monitoring.dashboards import queries
from tests.monitoring.prometheus_server import RATE_INTERVAL
from tests.monitoring.rule_files import alerts
from tests.scheduling.extender_server import ExtendedScheduler


def holds(scheduler: ExtendedScheduler, name: str) -> bool:
    """Whether the expression of an alert holds now, whatever its `for`."""
    [expression] = [rule["expr"] for rule in alerts() if rule["alert"] == name]
    return bool(scheduler.prometheus.query(expression))


def test_every_panel_has_data_and_faults_of_the_extender_fire_their_alerts(scheduler: ExtendedScheduler) -> None:
    wait, prometheus = scheduler.plane.wait, scheduler.prometheus
    wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", "extender")
    scheduler.create("seen", only="hot")
    scheduler.create("placed")
    scheduler.wait_until_refused("seen")
    scheduler.wait_until_bound("placed")

    def has_data() -> bool:
        found = [query.replace("$__rate_interval", RATE_INTERVAL) for _, query in queries("scheduling")]
        return all(prometheus.query(query) for query in found)

    wait(has_data, "data of every panel", "prometheus")
    healthy = {"PodgateExtenderDown", "PodgateLoadSourceStale", "PodgateNodeLoadsUnknown", "PodgateWakeFails"}
    assert [name for name in healthy if holds(scheduler, name)] == []

    def is_refused() -> bool:
        assert scheduler.post("filter", "client") == 400
        return holds(scheduler, "PodgateExtenderCallsRefused")

    wait(is_refused, "the alert about refused calls", "prometheus")
    scheduler.stop_extender(kill=True)
    wait(lambda: holds(scheduler, "PodgateExtenderDown"), "the alert that no extender is scraped", "prometheus")
    scheduler.start_extender()
    wait(lambda: not holds(scheduler, "PodgateExtenderDown"), "the end of the alert", "prometheus")
    assert {(rule["name"], rule.get("lastError")) for rule in prometheus.rules() if rule["health"] != "ok"} == set()
    scheduler.plane.wait(lambda: scheduler.is_hot("hot"), "the load of the hot node", "extender")
    scheduler.delete_all()
