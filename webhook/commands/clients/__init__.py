"""Clients of running servers: status, decisions, queues and the extender."""
