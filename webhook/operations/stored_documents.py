"""Stored documents for commands, read with the user's own rights: the live policy, and overrides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from webhook.adapters.overrides_file import FileOverridesStore
from webhook.core.document.configmap import NAME, NAMESPACE, ConfigMap, NoDocumentError, read_document
from webhook.core.installation.objects import ObjectReference
from webhook.errors import UserError
from webhook.ports import OverridesStore
from webhook.support.kubeconfig import Kubeconfig


async def read_live_policy(kubeconfig: Kubeconfig) -> bytes:
    """Return the policy document. UserError: the cluster cannot be read, or has no policy."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        reference = ObjectReference("v1", "ConfigMap", NAME, NAMESPACE)
        found = await kubernetes.ClusterObjects(client).get(reference)
    finally:
        await client.close()
    if found is None:
        raise UserError(f"configmap {NAMESPACE}/{NAME}: there is none in the cluster", "give the file of a policy")
    try:
        return read_document(msgspec.convert(found, ConfigMap))
    except NoDocumentError as error:
        raise UserError(str(error)) from None


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
