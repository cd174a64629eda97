"""Demo (`podgate demo`): its scenes, and its environment of keys, a server process, and calls of an API server."""
