"""Live policy: the document in a cluster's ConfigMap, read with a kubeconfig."""

import msgspec

from webhook.core.document.configmap import NAME, NAMESPACE, ConfigMap, NoDocumentError, document_of
from webhook.core.installation.objects import ObjectReference
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig


async def read_live_policy(kubeconfig: Kubeconfig) -> bytes:
    """Return the document. UserError: the cluster cannot be read, or has none."""
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
        return document_of(msgspec.convert(found, ConfigMap))
    except NoDocumentError as error:
        raise UserError(str(error)) from None
