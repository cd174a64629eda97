"""Facts for `podgate check` and `podgate explain`, read from the API server with the user's own permissions."""

from webhook.adapters.kubernetes.api.requests import ApiError, UnreachedError
from webhook.adapters.kubernetes.cluster_facts.custom_objects import CustomObjectReader
from webhook.adapters.kubernetes.cluster_facts.pods import PodReader
from webhook.adapters.kubernetes.cluster_facts.probing import (
    count_fail_open,
    count_refused,
    identify_process,
    probe_pods,
    review_rights,
)
from webhook.adapters.kubernetes.cluster_facts.reading import Reading, read_objects, read_secret, read_version
from webhook.adapters.kubernetes.cluster_facts.secrets import (
    SECRETS,
    SERVING,
    fetch_chain,
    list_scheduler_cas,
    list_secret_facts,
    list_trust_facts,
    make_served_fact,
    parse_chain,
)

__all__ = [
    "SECRETS",
    "SERVING",
    "ApiError",
    "CustomObjectReader",
    "PodReader",
    "Reading",
    "UnreachedError",
    "count_fail_open",
    "count_refused",
    "fetch_chain",
    "identify_process",
    "list_scheduler_cas",
    "list_secret_facts",
    "list_trust_facts",
    "make_served_fact",
    "parse_chain",
    "probe_pods",
    "read_objects",
    "read_secret",
    "read_version",
    "review_rights",
]
