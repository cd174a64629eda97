"""The environment of `podgate demo`: keys, a server process, and an API server's calls."""
