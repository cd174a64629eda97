"""Commands about the scheduler extender."""
