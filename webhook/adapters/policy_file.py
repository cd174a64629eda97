"""Policy file: read every second and passed to a receiver.

The content is read, not only the file's status: stat would miss a rewrite of equal size within one tick of the file
system's clock, and file notifications would miss the symlink swap of a mounted ConfigMap. A document is at most 1 MiB.
"""

import asyncio
from pathlib import Path

from webhook.core.document.yaml.text import DOCUMENT_BYTES_MAX
from webhook.errors import SignatureError
from webhook.ports import DocumentReceiver, DocumentSignatures
from webhook.support.watched_file import read_regular

POLL_SECONDS = 1.0
_SIGNATURE_BYTES_MAX = 1 << 10


class PolicyFile:
    """Reader that passes the content of the file to a receiver, which ignores unchanged content."""

    def __init__(
        self,
        path: str | Path,
        receiver: DocumentReceiver,
        *,
        poll_seconds: float = POLL_SECONDS,
        signatures: DocumentSignatures | None = None,
    ) -> None:
        """`signatures`: accepts the document by the signature in the file of the same name and `.sig`."""
        self._signatures = signatures
        self._path = Path(path)
        self._receiver = receiver
        self._poll_seconds = poll_seconds
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read now. Concurrent callers share one read; a cancelled caller does not stop it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="policy-file-read")
        await asyncio.shield(self._reading)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._poll_seconds)

    async def _read(self) -> None:
        try:
            raw = await asyncio.to_thread(self._read_accepted)
        except SignatureError as error:
            await self._receiver.on_unreadable([str(error)])
        except OSError as error:
            reason = error.strerror or error
            await self._receiver.on_unreadable(
                [f"{self._path}: cannot read the policy: {reason}: put a good document there"]
            )
        else:
            await self._receiver.on_document(raw, str(self._path))

    def _read_accepted(self) -> bytes:
        raw = read_regular(self._path, DOCUMENT_BYTES_MAX)
        if self._signatures is not None:
            place = self._path.with_name(f"{self._path.name}.sig")
            try:
                signature = read_regular(place, _SIGNATURE_BYTES_MAX).decode(errors="replace")
            except FileNotFoundError:
                signature = None
            self._signatures.verify(raw, signature, str(place))
        return raw
