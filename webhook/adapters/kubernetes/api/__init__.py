"""API server access: connection, requests, list and watch, and object types."""
