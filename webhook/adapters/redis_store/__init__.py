"""Counters in Redis, shared by replicas. The script in `lua/` implements `core/ledger/operations.py`.

How the script works: docs/design/script-operation.md.
"""

import webhook.adapters.redis_store.library  # noqa: F401  first: it bounds what the others import
from webhook.adapters.redis_store.decision_stream import RedisDecisions
from webhook.adapters.redis_store.rollout_counts import RedisRolloutCounts
from webhook.adapters.redis_store.store import RedisStore
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.redis_url import open_transport

__all__ = ["RedisDecisions", "RedisRolloutCounts", "RedisStore", "Transport", "open_transport"]
