"""A real server with overrides in a file: they apply to the next Pod, are shown, and expire."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from tests.app.overrides_serving import entry, service, status, wait_for_end, wait_until, write
from tests.harness.server_process import Files, Serving, pod, run_server
from webhook.commands.simulator import Ask

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
"""
UNTIL = 'podgate_override_until_timestamp_seconds{service="payment-api"}'
RELOADED = "podgate_overrides_last_reload_successful"


async def is_admitted(server: Serving) -> bool:
    response = await server.create(Ask(pod(), "payments", str(uuid4())))
    return bool(response["allowed"])


async def test_override_applies_is_shown_and_expires(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert [await is_admitted(server), await is_admitted(server)] == [True, False]
        assert (await status(server))["overrides"] == {"source": str(path), "errors": [], "entries": []}
        assert await server.metric(RELOADED) == 1

        write(path, entry("grant: [{window: 1h, hard: {pods: 2}}]"))
        shown_service = service(await wait_until(server, lambda document: bool(document["overrides"]["entries"])))
        assert shown_service["override"]["grant"] == [{"window": "1h", "hard": {"pods": "2"}}]
        assert [window["hard"] for window in shown_service["windows"]] == [3]
        assert [await is_admitted(server) for _ in range(3)] == [True, True, False]
        assert await server.metric(UNTIL) > 0

        write(path, entry(in_audit := "modes: {quota: Audit}"))
        await wait_until(server, lambda document: service(document)["modes"]["quota"] == "Audit")
        assert await is_admitted(server)
        await wait_for_end(server, path, in_audit, lambda shown: service(shown)["modes"]["quota"] == "Enforce")
        assert not await is_admitted(server), "the override expired, the file is unchanged"
        assert await server.metric(UNTIL) == 0
        assert service(await status(server))["override"] is None


async def test_invalid_overrides_change_nothing_and_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    write(path, entry("modes: {quota: Audit}"))
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert service(await status(server))["modes"]["quota"] == "Audit", "in force before the first review"
        write(path, entry("modes: {quota: audit}"))
        rejected = await wait_until(server, lambda document: bool(document["overrides"]["errors"]))
        assert rejected["overrides"]["errors"][0].startswith(
            f"{path}:1:41: [0].modes.quota: audit: not one of its values"
        )
        assert await server.metric(RELOADED) == 0
        assert [await is_admitted(server), await is_admitted(server)] == [True, True]
        path.unlink()
        await wait_until(server, lambda document: service(document)["modes"]["quota"] == "Enforce")
        assert not await is_admitted(server)
        assert (await status(server))["overrides"]["errors"] == []


async def test_pod_labelled_before_an_override_is_evaluated_under_it(tmp_path: Path) -> None:
    """Overrides are not part of the policy's hash: it stays the same, and the current override applies."""
    path = tmp_path / "overrides.yaml"
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        first = await server.create(Ask(pod(), "payments", str(uuid4())))
        write(path, entry("quotaFactor: 2"))
        await wait_until(server, lambda document: bool(document["overrides"]["entries"]))
        second = await server.create(Ask(pod(), "payments", str(uuid4())))
        hashes = {response["pod"]["metadata"]["annotations"]["podgate.io/policy-hash"] for response in (first, second)}
        assert (first["allowed"], second["allowed"], len(hashes)) == (True, True, 1)


async def test_overrides_are_not_shown_without_a_source(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, POLICY)) as server:
        assert (await status(server))["overrides"] == {"source": None, "errors": [], "entries": []}
        _, text = await server.get("/metrics")
        assert RELOADED not in text


async def test_reset_is_applied_once_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert [await is_admitted(server), await is_admitted(server)] == [True, False]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        write(path, entry(f"quotaReset: {{at: {at}, window: 1h}}"))
        await wait_until(server, lambda document: service(document)["windows"][0]["used"] == 0)
        assert [await is_admitted(server), await is_admitted(server)] == [True, False]
