"""Facts for `podgate check` and `podgate explain`, read from the API server with the user's own permissions."""

from webhook.adapters.kubernetes.api.requests import ApiError, UnreachedError
from webhook.adapters.kubernetes.cluster_facts.pods import PodReader
from webhook.adapters.kubernetes.cluster_facts.probing import (
    fail_open_counts,
    probed,
    refused_counts,
    reviewed,
    started,
)
from webhook.adapters.kubernetes.cluster_facts.reading import Reading, read_objects, read_secret, read_version
from webhook.adapters.kubernetes.cluster_facts.secrets import (
    SECRETS,
    SERVING,
    chain_of,
    scheduler_cas,
    secret_facts,
    served_at,
    served_fact,
    trust_facts,
)

__all__ = [
    "SECRETS",
    "SERVING",
    "ApiError",
    "PodReader",
    "Reading",
    "UnreachedError",
    "chain_of",
    "fail_open_counts",
    "probed",
    "read_objects",
    "read_secret",
    "read_version",
    "refused_counts",
    "reviewed",
    "scheduler_cas",
    "secret_facts",
    "served_at",
    "served_fact",
    "started",
    "trust_facts",
]
