"""Pods of services as they are now, read with the rights of the kubeconfig's user."""

import time
from collections.abc import Mapping, Sequence

from webhook.core.installation.objects import ObjectReference
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Service
from webhook.core.policy_fields import OutcomeRules, OutcomeSource
from webhook.core.suggestion.observed_pods import ObservedPods
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

_PODS = ObjectReference("v1", "Pod", "")
_START_DEADLINE = OutcomeRules(OutcomeSource.POD_START).start_deadline


async def observe_pods(
    kubeconfig: Kubeconfig, services: Sequence[Service], warnings: list[str]
) -> Mapping[str, Sequence[str]]:
    """Return lines about the labelled Pods of each service; none if they cannot be read, which a warning says."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    now_us = time.time_ns() // 1000
    seen = {service.name: ObservedPods(_find_deadline_us(service), now_us) for service in services}
    selector = f"{SERVICE_LABEL}={services[0].name}" if len(services) == 1 else SERVICE_LABEL
    try:
        client = await kubernetes.connect(kubeconfig)
        try:
            async for document in kubernetes.ClusterObjects(client).iterate(_PODS, selector):
                found = seen.get(document["metadata"]["labels"][SERVICE_LABEL])
                if found is not None:
                    found.add(Pod.from_document(document))
        finally:
            await client.close()
    except (UserError, ValueError, *UNREADABLE_JSON) as error:
        warnings.append(f"Pods as they are now were not read: {error}")
        return {}
    return {name: list(found.describe()) for name, found in seen.items()}


def _find_deadline_us(service: Service) -> int:
    rules = service.breaker.outcomes if service.breaker is not None else None
    return (_START_DEADLINE if rules is None else rules.start_deadline).us
