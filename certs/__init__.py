"""Certificates: a small authority, its leaves, and what they say of themselves. Knows nothing of the webhook."""
