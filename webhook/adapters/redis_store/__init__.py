"""Counters in Redis, shared by replicas: one script, `lua/`, does what `ledger/operations.py` says."""

from webhook.adapters.redis_store.store import RedisStore
from webhook.adapters.redis_store.transport.redis_url import open_transport
from webhook.adapters.redis_store.transport.topology import Transport

__all__ = ["RedisStore", "Transport", "open_transport"]
