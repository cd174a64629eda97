"""Commands that evaluate a policy offline: `podgate review`, `replay` and `test`."""
