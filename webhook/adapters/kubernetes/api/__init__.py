"""Access to the API server: connection, requests, list and watch, and the objects as they are stored."""
