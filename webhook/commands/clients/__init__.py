"""Clients of running servers: status, decisions, decision records and reviews."""
