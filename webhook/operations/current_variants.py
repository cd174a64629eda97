"""Current breakers of variants, of the services whose Pods have slots, as a server shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from webhook.commands.clients.status_client import build_no_services_error, parse_status
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.diagnosis.report import VariantReport
from webhook.core.diagnosis.variant_states import list_variant_states
from webhook.core.placement import VARIANT_LABEL
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.status import CONTROLLER
from webhook.errors import UserError
from webhook.operations.server_discovery import ServerLocation, open_server


class CurrentVariants:
    """Asks a server's plain port, anew each time: the server may have been replaced."""

    def __init__(self, where: ServerLocation) -> None:
        self._where = where

    async def find(
        self, pods: Sequence[ReportedPod], records: Sequence[DecisionRecord], unread: dict[str, str]
    ) -> Mapping[str, tuple[VariantReport, ...]]:
        """Return the variants of services, {} if none of the Pods has a slot. Without a server, `unread` has why."""
        is_divided = any(VARIANT_LABEL in (pod.metadata.labels or {}) for pod in pods)
        if not is_divided and all(record.slot is None for record in records):
            return {}
        try:
            document = await self._read_status()
        except UserError as error:
            # Remedies name the option of most commands, which is another port of this one.
            remedy = f": {error.remedy.replace('--server', '--status')}" if error.remedy else ""
            unread["variants"] = " ".join(f"{error}{remedy}".split())
            return {}
        found = {service["name"]: service.get("shares") for service in document["services"]}
        return {name: list_variant_states(shares) for name, shares in found.items() if shares is not None}

    async def _read_status(self) -> dict[str, Any]:
        async with open_server(self._where) as server:
            document = parse_status(await server.get("/status"), server.name)
            if document.get("role") == CONTROLLER:
                raise build_no_services_error(server.name)
            return document
