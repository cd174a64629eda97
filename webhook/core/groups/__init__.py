"""Groups of Pods that belong together: what says so, and when all of a group's members wait."""
