"""Pages about nodes and the scheduler extender."""
