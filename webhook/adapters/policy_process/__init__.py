"""Checks policies in a process of their own: `parent` starts it and waits, `child` is what runs there."""
