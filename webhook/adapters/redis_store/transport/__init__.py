"""Connections to Redis: one server, a group behind Sentinel, or a cluster; and the call of the script over them."""
