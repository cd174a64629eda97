"""Rights of service accounts, reviewed by the API server."""

import asyncio
from collections.abc import Iterable

import msgspec
from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.requests import answer
from webhook.adapters.kubernetes.cluster_facts.reading import SECONDS
from webhook.core.checks.facts import RightFact
from webhook.core.checks.rights import Right

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Allowed(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Allowed = _Allowed()


async def reviewed(client: ApiClient, rights: Iterable[Right]) -> list[RightFact]:
    """Return whether each right is granted. ApiError."""
    return await asyncio.gather(*(_reviewed(client, one) for one in rights))


async def _reviewed(client: ApiClient, right: Right) -> RightFact:
    attributes = {
        "namespace": right.namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{right.account_namespace}:{right.account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{right.account_namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": attributes,
        },
    }
    found = msgspec.json.decode(await answer(client, "POST", _PATH, SECONDS, body=body), type=_Review)
    return RightFact(right.account, str(right), found.status.allowed, right.manifests)
