"""A real server with shares: the breaker of a variant in its status, metrics and commands, under overrides."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.app.overrides_serving import entry, service, wait_for_end, wait_until, write
from tests.cli.command_runner import podgate
from tests.harness.server_process import Files, run_server

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  placement:
    shares:
      base: {variant: on-demand, pods: 2}
      variants: [{name: spot, weight: 80, nodeSelector: {kind: spot}}, {name: on-demand, weight: 20}]
"""
TRANSITIONS = "podgate_variant_breaker_transitions_total"


def spot(document: dict[str, Any]) -> dict[str, Any]:
    variants = service(document)["shares"]["variants"]
    return dict(next(variant["breaker"] for variant in variants if variant["name"] == "spot"))


async def test_a_forced_variant_is_shown_and_ends_with_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        labels = 'from="CLOSED",reason="unschedulable",service="payment-api",to="OPEN",variant="spot"'
        assert await server.metric(f"{TRANSITIONS}{{{labels}}}") == 0, "from 0 on"
        write(path, entry(forced_open := "variant: spot, breaker: ForcedOpen"))
        document = await wait_until(server, lambda shown: spot(shown)["state"] == "FORCED_OPEN")
        assert spot(document)["reason"] == "INC-1"
        assert spot(document)["openRemainingSeconds"] > 0
        assert service(document)["breaker"] is None
        labels = 'service="payment-api",state="FORCED_OPEN",variant="spot"'
        assert await server.metric(f"podgate_variant_breaker_state{{{labels}}}") == 1
        listed = await asyncio.to_thread(podgate, "breaker", "list", "--server", f"http://{server.plain}")
        [row] = json.loads(listed.out)
        assert (row["service"], row["variant"], row["state"]) == ("payment-api", "spot", "FORCED_OPEN")
        page = await asyncio.to_thread(podgate, "status", "--server", f"http://{server.plain}", "-o", "table")
        assert "payment-api: shares the first 2 on-demand, then spot 80 : on-demand 20" in page.out
        assert "payment-api, variant spot: FORCED_OPEN since" in page.out
        await wait_for_end(server, path, forced_open, lambda shown: spot(shown)["state"] == "CLOSED")
        write(path, entry("variant: gpu, breaker: ForcedOpen"))
        document = await wait_until(server, lambda shown: bool(shown["overrides"]["entries"]))
        [shown] = document["overrides"]["entries"]
        assert shown["withoutEffect"] == ["variant: gpu: no such variant; variants with a breaker: spot"]
