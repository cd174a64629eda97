"""Opening of the traces of a process, with its role and its resource attributes."""

import os
import time
from socket import gethostname

from webhook.adapters.metrics import ProcessRole
from webhook.adapters.traces import RatioSampler, Traces, open_traces
from webhook.ports.store_url import StoreUrl
from webhook.ports.traces import TraceParent
from webhook.settings import MEMORY, ControllerSettings, ProcessSettings, Settings, is_in_cluster


def find_role(settings: ProcessSettings) -> ProcessRole:
    """Return the roles of this process: a server with in-memory counters reconciles them as well."""
    if not isinstance(settings, ControllerSettings):
        return ProcessRole.SCHEDULES
    if not isinstance(settings, Settings):
        return ProcessRole.RECONCILES
    if settings.store != MEMORY:
        return ProcessRole.REVIEWS | ProcessRole.SHARES_STORE
    has_cluster = settings.kubeconfig is not None or is_in_cluster(os.environ)
    return ProcessRole.REVIEWS | ProcessRole.RECONCILES if has_cluster else ProcessRole.REVIEWS


def open_process_traces(settings: ProcessSettings, version: str) -> Traces | None:
    """Return the traces of a process; None without an endpoint."""
    if settings.otlp_endpoint is None:
        return None
    # Nobody calls a controller, and kube-scheduler sends no parent.
    trace_parent = settings.trace_parent if isinstance(settings, Settings) else TraceParent.IGNORE
    resource = {
        "service.name": _choose_service_name(settings),
        "service.version": version,
        "service.instance.id": gethostname(),
    }
    redis = ""
    if isinstance(settings, ControllerSettings):
        resource["k8s.cluster.name"] = settings.cluster
        redis = "" if settings.store == MEMORY else StoreUrl.parse(settings.store).only_server
    return open_traces(
        settings.otlp_endpoint, RatioSampler(settings.trace_ratio, trace_parent), time.time_ns, resource, redis
    )


def _choose_service_name(settings: ProcessSettings) -> str:
    if isinstance(settings, Settings):
        return "podgate"
    return "podgate-controller" if isinstance(settings, ControllerSettings) else "podgate-extender"
