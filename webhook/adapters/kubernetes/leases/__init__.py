"""Leases: of the leader, and of the servers that share a store."""
