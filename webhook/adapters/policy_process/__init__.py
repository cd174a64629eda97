"""Policy check in a separate process: `parent` starts it, `child` runs in it."""
