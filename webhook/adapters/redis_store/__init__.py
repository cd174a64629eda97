"""Counters in Redis, shared by replicas: one script, `lua/`, does what `core/ledger.py` says."""

from webhook.adapters.redis_store.connection import open_link
from webhook.adapters.redis_store.link import Link
from webhook.adapters.redis_store.store import RedisStore

__all__ = ["Link", "RedisStore", "open_link"]
