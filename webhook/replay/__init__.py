"""Replay of recorded events over virtual time, by the server's own evaluation."""
