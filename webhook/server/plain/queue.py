"""Queue page of the plain port: waiting Pods in the order of their release, from the process that leads."""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

from webhook.controller.release.queue_reader import QueueReader, QueueSelection
from webhook.core.admission.denials import format_utc
from webhook.core.reporting.queue_document import ROWS_MAX, QueueDocument
from webhook.server.http_messages import Handler, HttpRequest, HttpResponse, build_closing_response, build_json_response

QUEUE = "/queue"
_NOT_YET = "it has begun to lead, and has not listed all Pods yet"


def build_queue_page(
    reader: Callable[[], QueueReader | None], waits_for: Callable[[], str], now_us: Callable[[], int]
) -> Handler:
    """Return the handler. Without a reader this process does not lead, and `waits_for` says who does."""

    async def handle(request: HttpRequest) -> HttpResponse:
        try:
            asked = parse_selection(request.query)
        except ValueError as error:
            return build_closing_response(HTTPStatus.BAD_REQUEST, str(error))
        queue = reader()
        if queue is None:
            document = QueueDocument(leads=False, time=format_utc(now_us()), waits_for=waits_for() or _NOT_YET)
        else:
            document = await queue.make_document(asked)
        return build_json_response(msgspec.json.encode(document))

    return handle


def parse_selection(query: str) -> QueueSelection:
    """Return which Pods a query asks for. ValueError: an unknown parameter or a bad value."""
    given = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=9))
    limit = given.pop("limit", str(ROWS_MAX))
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= len(str(ROWS_MAX)) and int(limit) <= ROWS_MAX):
        raise ValueError(f"limit: {limit!r}: must be a number up to {ROWS_MAX}")
    service, uid = given.pop("service", ""), given.pop("uid", "")
    if given:
        raise ValueError(f"{next(iter(given))}: no such parameter: there are service, uid and limit")
    return QueueSelection(service, uid, int(limit))
