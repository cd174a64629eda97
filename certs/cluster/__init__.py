"""Certificates and token keys in a cluster, maintained by the leader: Secrets, bundles, webhook configurations."""
