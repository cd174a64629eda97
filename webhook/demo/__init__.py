"""`podgate demo`: its scenes, and its environment: keys, a server process, and the API server's calls."""
