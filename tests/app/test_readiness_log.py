"""Log of readiness: one line with reasons when lost, one when regained."""

import json
from datetime import timedelta
from pathlib import Path
from typing import cast

from certs.files import write_key_pair
from tests.app.readiness_log import LogLines
from tests.harness.raw_http import eventually
from tests.harness.server_process import Files, run_server
from tests.server.hardening import log
from webhook.adapters.logs import Logs
from webhook.app.supervision import ReadinessLog


def test_each_readiness_change_is_logged_once() -> None:
    lines, reasons = LogLines(), list[str]()
    log = ReadinessLog(lambda: reasons, cast("Logs", lines), leaving="draining")
    for current in (
        [],
        ["expired"],
        ["expired"],
        ["expired", "no keys"],
        [],
        [],
        ["draining"],
        ["draining", "expired"],
    ):
        reasons[:] = current
        log.check()
    assert lines.written == [
        ("error", "not ready", ["expired"]),
        ("error", "not ready", ["expired", "no keys"]),
        ("info", "ready again", None),
    ]


async def test_a_serving_certificate_that_expires_is_reported_in_the_log(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    paths = files.pki.paths
    short_lived = files.pki.authority.issue_server("localhost", (), timedelta(seconds=6))
    write_key_pair(short_lived, paths.certificate, paths.key, replace=True)
    async with run_server(files, "--drain", "0s") as server:

        async def is_logged() -> bool:
            logged = [json.loads(line) for line in log(server).splitlines() if line.startswith("{")]
            return any(record.get("reasons") == ["the serving certificate has expired"] for record in logged)

        await eventually(is_logged)
        assert (await server.get("/readyz"))[0] == 503
