"""Health endpoints: the content type of the metrics is the one that a scraper prefers."""

import asyncio

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from webhook.server.http_messages import (
    NO_CONTENT,
    HttpRequest,
    HttpResponse,
    HttpVersion11,
    RequestConnection,
    RequestHead,
)
from webhook.server.plain.health import build_plain_handler

TEXT, OPENMETRICS = "text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


async def return_nothing() -> bytes:
    return b""


async def no_queue(_: HttpRequest) -> HttpResponse:
    return HttpResponse(200, b"")


HANDLE = build_plain_handler(list, dict.fromkeys((TEXT, OPENMETRICS), return_nothing), return_nothing, no_queue)


async def content_type(accept: str | None) -> str:
    headers = CIMultiDictProxy(CIMultiDict({} if accept is None else {"accept": accept}))
    head = RequestHead("GET", "/metrics", "", headers, HttpVersion11, keep_alive=True)
    connection = RequestConnection(asyncio.get_running_loop())
    request = HttpRequest(connection, head, None, 0, b"", NO_CONTENT)
    return (await HANDLE(request)).content_type


@pytest.mark.parametrize(
    "accept", [PROMETHEUS_2, PROMETHEUS_3, "Application/OpenMetrics-Text", "application/openmetrics-text; q=0.1"]
)
async def test_openmetrics_is_sent_to_scrapers_that_prefer_it(accept: str) -> None:
    assert await content_type(accept) == OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        *(None, "", "*/*", "text/plain", "text/plain;version=0.0.4", "text/html", "application/openmetrics", ";;,=;q"),
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=0.4,text/plain;q=0.5",
        "application/openmetrics-text, text/plain",
    ],
)
async def test_others_get_the_text_format(accept: str | None) -> None:
    assert await content_type(accept) == TEXT
