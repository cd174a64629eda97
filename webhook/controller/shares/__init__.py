"""The controller's part in shares: slots of Pods that exist, and the evictions by which Pods change their variant."""
