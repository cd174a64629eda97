"""Helpers of the `hardening` tests that other tests use, too."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.harness.server_process import Files, Serving, run_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    """Return the server that all tests attack: a failure because of an earlier attack is a defect."""
    files = Files.create(tmp_path_factory.mktemp("server"))
    async with run_server(files, "--body-timeout", "2s", "--drain", "1s") as running:
        yield running


def log(server: Serving) -> str:
    return "".join(path.read_text() for path in sorted(server.files.folder.glob("server-*.log")))
