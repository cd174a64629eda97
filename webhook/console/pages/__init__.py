"""Pages of the console, one module each with its `PAGE`."""
