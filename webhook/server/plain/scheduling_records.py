"""Page of the extender's decision port with the scheduling records of Pods."""

from collections.abc import Mapping
from itertools import islice

import msgspec

from webhook.extender.scheduling_records import SchedulingRecords
from webhook.server.http_messages import HttpResponse, json_response
from webhook.server.plain.local_pages import Page, known_parameters, limit_of

SCHEDULING = "/api/v1/scheduling"
_TEXTS = ("service", "namespace", "name", "uid", "node")
_LIMIT, _LIMIT_MAX = 100, 1_000


def scheduling_page(records: SchedulingRecords) -> Page:
    """Return the page: records, the newest first, that have all the given values."""

    async def show(parameters: Mapping[str, str]) -> HttpResponse:
        known_parameters(parameters, (*_TEXTS, "limit"))
        limit = limit_of(parameters, _LIMIT, _LIMIT_MAX)
        asked = [(name, parameters[name]) for name in _TEXTS if parameters.get(name)]
        found = (one for one in records.newest_first() if all(getattr(one, name) == value for name, value in asked))
        return json_response(msgspec.json.encode({"records": list(islice(found, limit))}))

    return show
