"""Certificates and token keys in a cluster, managed by the leader: Secrets, bundles, webhook configurations."""
