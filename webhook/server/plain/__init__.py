"""Handlers of the ports without TLS."""
