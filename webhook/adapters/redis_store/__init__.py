"""Counters in Redis, shared by replicas: one script, `lua/`, does what `core/ledger.py` says."""

from webhook.adapters.redis_store.connection import connect
from webhook.adapters.redis_store.store import RedisStore

__all__ = ["RedisStore", "connect"]
