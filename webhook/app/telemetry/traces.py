"""Opening of the traces of a process, with what describes it in each of them."""

import time
from socket import gethostname

from webhook.adapters.traces import RatioSampler, Traces, open_traces
from webhook.ports.store_url import StoreUrl
from webhook.ports.traces import TraceParent
from webhook.settings import MEMORY, ControllerSettings, ProcessSettings, Settings


def traces_of(settings: ProcessSettings, version: str) -> Traces | None:
    """Return the traces of a server or a controller; None without an endpoint."""
    if not isinstance(settings, ControllerSettings) or settings.otlp_endpoint is None:
        return None
    is_server = isinstance(settings, Settings)
    # A controller is called by nobody.
    trace_parent = settings.trace_parent if isinstance(settings, Settings) else TraceParent.IGNORE
    resource = {
        "service.name": "podgate" if is_server else "podgate-controller",
        "service.version": version,
        "service.instance.id": gethostname(),
        "k8s.cluster.name": settings.cluster,
    }
    redis = "" if settings.store == MEMORY else StoreUrl.parse(settings.store).only_server
    return open_traces(
        settings.otlp_endpoint, RatioSampler(settings.trace_ratio, trace_parent), time.time_ns, resource, redis
    )
