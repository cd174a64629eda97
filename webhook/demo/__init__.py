"""`podgate demo`: its story, and its environment: keys, a server process, and an API server's calls."""
