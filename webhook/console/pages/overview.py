"""Overview page: services by trouble, with breaker, quota, waiting Pods and recent denials."""

import asyncio

from webhook.console.interface.document_reader import DocumentReader
from webhook.console.interface.page import Page, PageRequest
from webhook.core.console_views.overview import (
    JudgedServices,
    Overview,
    OverviewQuery,
    build_overview,
    judge_services,
)

_TEXT_MAX = 63


async def build(request: PageRequest) -> Overview:
    asked = OverviewQuery(
        request.query.get("text", "")[:_TEXT_MAX], request.query.get("only") == "trouble", request.parse_number("page")
    )
    return build_overview(await request.reader.share(_judge_all), asked)


async def _judge_all(reader: DocumentReader) -> JudgedServices:
    server, queues, denials = await asyncio.gather(reader.read_server(), reader.read_queues(), reader.read_denials())
    return judge_services(server, denials.by_service, queues, [denials.problem] if denials.problem else [])


PAGE = Page("overview", "/", "Services", build, menu_place=0, menu_text="Services")
