"""Helpers of the `checks` tests that other tests use, too."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tests.core.reporting.status import NOW_US
from webhook.core.checks import SECTIONS, ClusterFacts
from webhook.core.reporting.status import ServerStatus, render_server_status

CHECKS = {check.code: check for section in SECTIONS for check in section.checks}


def document(**fields: Any) -> dict[str, Any]:
    """Return the status document of a server."""
    status = ServerStatus("0.1.0", NOW_US, NOW_US, **fields)
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(render_server_status(status)))
    return decoded


FACTS = ClusterFacts(NOW_US, "0.1.0", status=document(), server="server")


def decode_object(kind: type[Any], document: Mapping[str, Any]) -> Any:
    return msgspec.convert(document, kind)
