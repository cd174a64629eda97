"""`podgate explain` asks a server for the present breakers of variants, only where a Pod has a slot."""

from pathlib import Path
from typing import Any

import msgspec

from tests.app.status_command import plain_port
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.diagnosis.report import VariantReport
from webhook.operations.current_variants import CurrentVariants
from webhook.operations.server_discovery import ServerLocation
from webhook.support.kubeconfig import Kubeconfig

BREAKER = {"state": "CLOSED", "reason": "", "openUntil": None}
SHARES = {"variants": [{"name": "spot", "hasBreaker": True, "breaker": BREAKER}]}
SERVICES = [{"name": "web", "shares": SHARES}, {"name": "db", "shares": None}, {"name": "of-an-older-server"}]


def waiting(**labels: str) -> ReportedPod:
    pod = {"metadata": {"labels": labels}, "spec": {"containers": []}, "status": {}}
    return msgspec.convert(pod, ReportedPod)


DIVIDED = waiting(**{"podgate.io/variant": "spot"})


async def find(pod: ReportedPod, document: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    unread: dict[str, str] = {}
    with plain_port(msgspec.json.encode(document)) as url:
        found = await CurrentVariants(ServerLocation(url, Kubeconfig((Path("none"),)))).find([pod], (), unread)
    return found, unread


async def test_a_pod_with_a_variant_is_asked_about() -> None:
    assert await find(DIVIDED, {"services": SERVICES}) == ({"web": (VariantReport("spot", "CLOSED"),)}, {})


async def test_nobody_is_asked_about_other_pods() -> None:
    assert await find(waiting(app="web"), {"role": "controller"}) == ({}, {})


async def test_what_shows_no_services_is_named() -> None:
    found, unread = await find(DIVIDED, {"role": "controller"})
    assert found == {}
    assert "is a controller, which shows no services" in unread["variants"]
    found, unread = await find(DIVIDED, {})
    assert "answers, but not as Podgate does: give --status the plain port" in unread["variants"]
