"""Service page: limits, breaker, refusals and waiting Pods of one service."""

import asyncio

from msgspec.structs import replace

from webhook.console.interface.page import Page, PageRequest
from webhook.console.interface.page_documents import read_outcomes, read_queue, read_records
from webhook.core.console_views.queue import hide_pod
from webhook.core.console_views.recent_denials import MINUTES
from webhook.core.console_views.refusals import RefusedWorkload, hide_workload
from webhook.core.console_views.service import ServiceView, build_service
from webhook.core.reporting.queue_document import QueueDocument, QueueRow
from webhook.errors import NoSuchServiceError, UserError

_NO_COUNTS = (0,) * MINUTES


async def build(request: PageRequest) -> ServiceView:
    """Return the page. NoSuchServiceError: the policy in force has no such service."""
    reader, name = request.reader, request.path["name"]
    server = await reader.read_server()
    service = next((row for row in server.services if row.name == name), None)
    if service is None:
        raise NoSuchServiceError(f"the policy in force has no service {name!r}", "go back to the services")
    denials, records, queue, outcomes = await asyncio.gather(
        reader.read_denials(), read_records(reader, name), _read_queue(request, name), read_outcomes(reader, name)
    )
    problems = tuple(dict.fromkeys(filter(None, (records.error, denials.problem))))
    found = build_service(server, service, denials.by_service.get(name, _NO_COUNTS), records, queue, outcomes, problems)
    return await _hide_foreign(request, found)


async def _read_queue(request: PageRequest, service: str) -> QueueDocument | None:
    try:
        return await read_queue(request.reader, service)
    except UserError:
        return None


async def _hide_foreign(request: PageRequest, view: ServiceView) -> ServiceView:
    """Return the page without the names of Pods and workloads whose namespace the viewer may not read."""
    named = (*(found.namespace for found in view.workloads), *(row.namespace for row in view.pods))
    namespaces = list(dict.fromkeys(named))
    may = dict(zip(namespaces, await asyncio.gather(*map(request.viewer.sees, namespaces)), strict=True))

    def show_workload(found: RefusedWorkload) -> RefusedWorkload:
        return found if may[found.namespace] else hide_workload(found)

    def show_pod(row: QueueRow) -> QueueRow:
        return row if may[row.namespace] else hide_pod(row)

    return replace(view, workloads=tuple(map(show_workload, view.workloads)), pods=tuple(map(show_pod, view.pods)))


PAGE = Page("service", "/service/{name}", "Service {name}", build)
