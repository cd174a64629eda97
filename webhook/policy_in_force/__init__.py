"""The policy in force: loaded, compiled under the active overrides, and swapped as a whole."""
