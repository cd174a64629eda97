"""Certificates and token keys kept in a cluster by the leader: Secrets, bundles, and webhook configurations."""
