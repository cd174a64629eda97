"""Acts of the console, one module each with its `ACT`."""
