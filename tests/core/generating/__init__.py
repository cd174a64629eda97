"""Random Pods and policies for property tests, as JSON; import them from `tests.core.strategies`."""
