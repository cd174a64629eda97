"""The controller's status of managed certificates: current state only."""

import asyncio
import contextlib
from datetime import UTC, datetime
from pathlib import Path

from kubernetes_asyncio.client import ApiClient, Configuration

from tests.timeouts import HANG_SECONDS
from webhook.app.certificates import CertificateController
from webhook.app.telemetry import Telemetry
from webhook.settings import ControllerSettings
from webhook.settings.parsing import parse_as

ENDS = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)


async def test_error_is_shown_until_it_ends_or_leadership_or_the_loop_restarts(
    tmp_path: Path,
) -> None:
    (tmp_path / "kubeconfig").write_text("{}")
    flags = {"certificates": "own", "kubeconfig": str(tmp_path / "kubeconfig")}
    settings = parse_as(ControllerSettings, flags, {})
    telemetry, leads = Telemetry(settings, "0"), [True]
    unreachable_api = ApiClient(Configuration(host="http://127.0.0.1:1"))
    controller = CertificateController(settings, telemetry, unreachable_api)

    async def wait_for_error(*, is_shown: bool) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while bool(controller.build_status()["errors"]) is not is_shown:  # noqa: ASYNC110  it sets no event
                await asyncio.sleep(0.01)

    try:
        for is_leader in (True, False):
            leads[0] = is_leader
            controller._on_ends({"podgate-tls": ENDS})
            running = asyncio.create_task(controller.run(lambda: leads[0]))
            await wait_for_error(is_shown=is_leader)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    finally:
        await unreachable_api.close()
    assert controller.build_status()["secrets"] == {}
    assert b"podgate_kept_certificate_expiry" not in b"\n".join(
        line for line in telemetry.metrics.render().splitlines() if not line.startswith(b"#")
    )
