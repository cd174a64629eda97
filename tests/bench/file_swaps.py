"""Changes of a server's files: of its certificate and of the key set, from the new file to the value in force."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.harness.identity import Signer, jwks
from tests.harness.server_process import Files
from tests.timeouts import HANG_SECONDS
from webhook.authentication.jwks_file import JwksFile
from webhook.support.watched_file import WatchedFile
from webhook.tls.context import TlsFiles

_POLL_SECONDS = 0.01
KEYS = 100
"""Keys of the set, as of a fleet with many issuers."""

Operation = Callable[[int], Awaitable[None]]


@asynccontextmanager
async def file_swaps(folder: Path) -> AsyncIterator[dict[str, Operation]]:
    """Yield the changes by name; each returns when the new value is in force."""
    files = Files.create(folder)
    keys_path, signers = folder / "jwks.json", [Signer(kid=f"key-{number}") for number in range(KEYS)]
    keys_path.write_text(jwks(*signers))
    keys, certificates = JwksFile(keys_path), TlsFiles(files.pki.paths)
    tasks = [asyncio.create_task(watcher.run(_POLL_SECONDS)) for watcher in (keys, certificates)]

    async def change_keys(_: int) -> None:
        signers[0] = Signer(kid="key-0")
        await _change_and_wait(keys, lambda: keys_path.write_text(jwks(*signers)))

    async def change_certificate(_: int) -> None:
        await _change_and_wait(certificates, files.pki.renew_server)

    try:
        yield {f"a JWKS of {KEYS} keys": change_keys, "a serving certificate": change_certificate}
    finally:
        for task in tasks:
            task.cancel()


async def _change_and_wait(watched: WatchedFile[Any], change: Callable[[], object]) -> None:
    before = watched.generation
    await asyncio.to_thread(change)
    async with asyncio.timeout(HANG_SECONDS):
        while watched.generation == before:  # noqa: ASYNC110 - the file is polled
            await asyncio.sleep(_POLL_SECONDS)
