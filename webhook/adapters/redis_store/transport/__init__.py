"""Connections to Redis: one server, a primary with Sentinels, or a Cluster; and script calls over them."""
