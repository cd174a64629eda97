"""Facts that only test requests show: Pods created with dryRun, counters before and after, and accounts' rights."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, RefusedError, request_document, send_request
from webhook.adapters.kubernetes.cluster_facts.reading import SECONDS
from webhook.core.checks.facts import ProbeFact, RightFact
from webhook.core.checks.rights import Right
from webhook.core.installation.probe import PodProbe

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Allowed(Struct, frozen=True):
    allowed: bool = False


class _Review(Struct, frozen=True):
    status: _Allowed = _Allowed()


async def review_rights(client: ApiClient, rights: Iterable[Right]) -> list[RightFact]:
    """Return whether each right is granted. ApiError."""
    return await asyncio.gather(*(_review_right(client, right) for right in rights))


async def _review_right(client: ApiClient, right: Right) -> RightFact:
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
    found = decode_object(await send_request(client, "POST", _PATH, SECONDS, body=body), _Review)
    return RightFact(right.account, str(right), found.status.allowed, right.manifests)


_CREATED = 201
_DRY_RUN = (("dryRun", "All"),)
_METRICS_BYTES_MAX = 64 << 20
_FAIL_OPEN = re.compile(rb'^apiserver_admission_webhook_fail_open_count\{name="([^"]+)",[^}]*\} (\d+)', re.MULTILINE)
_REFUSED = re.compile(rb'^podgate_refused_calls_total\{[^}]*reason="([^"]+)"[^}]*\} (\d+)', re.MULTILINE)
_STARTED = re.compile(rb"^process_start_time_seconds (\S+)", re.MULTILINE)
_OWN = ".podgate.io"


async def probe_pods(client: ApiClient, pods: Iterable[PodProbe]) -> list[ProbeFact]:
    """Create Pods with dryRun, concurrently."""
    return await asyncio.gather(*(_probe_pod(client, probe) for probe in pods))


async def count_fail_open(client: ApiClient) -> Counter[str]:
    """Count the failed calls that the API server ignored (failurePolicy Ignore), by Podgate's webhook. ApiError."""
    body = await request_document(client, "/metrics", "*/*", SECONDS, _METRICS_BYTES_MAX)
    return Counter({name: count for name, count in _parse_counts(_FAIL_OPEN, body).items() if name.endswith(_OWN)})


def count_refused(metrics: bytes) -> Counter[str]:
    """Count the calls that a server refused because of the caller, by reason, without bad or interrupted requests."""
    prefixes = ("authentication_", "handshake_refused", "handshake_no_certificate", "handshake_certificate")
    return Counter({reason: n for reason, n in _parse_counts(_REFUSED, metrics).items() if reason.startswith(prefixes)})


def identify_process(metrics: bytes) -> bytes:
    """Return the start time that identifies a process: each request to a Service may reach another one."""
    found = _STARTED.search(metrics)
    return found[1] if found else b""


def _parse_counts(pattern: re.Pattern[bytes], text: bytes) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in pattern.findall(text):
        found[name.decode()] += int(count)
    return found


async def _probe_pod(client: ApiClient, probe: PodProbe) -> ProbeFact:
    namespace = probe.reference.namespace
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        created = decode_object(await send_request(client, "POST", path, SECONDS, _DRY_RUN, probe.pod), dict[str, Any])
    except RefusedError as error:
        return ProbeFact(probe.service, namespace, error.status, str(error), is_rewritten=False)
    except ApiError as error:
        return ProbeFact(probe.service, namespace, 0, str(error), is_rewritten=False)
    return ProbeFact(probe.service, namespace, _CREATED, "", is_rewritten=probe.is_rewritten(created))
