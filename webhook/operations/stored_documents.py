"""Stored overrides for commands, read and written with the user's own rights."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from webhook.adapters.overrides_file import FileOverridesStore
from webhook.ports import OverridesStore
from webhook.support.kubeconfig import Kubeconfig


@asynccontextmanager
async def open_overrides(
    kubeconfig: Kubeconfig, file: Path | None, *, dry_run: bool = False
) -> AsyncIterator[OverridesStore]:
    """Yield the overrides of a kubeconfig's cluster, or of a file if one is given; UserError: no usable kubeconfig.

    With `dry_run` nothing is written.
    """
    if file is not None:
        yield FileOverridesStore(file, dry_run=dry_run)
        return
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        yield kubernetes.ConfigMapOverridesStore(client, dry_run=dry_run)
    finally:
        await client.close()
