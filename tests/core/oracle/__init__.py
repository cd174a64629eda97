"""A second implementation of Kubernetes' semantics and of policies, on raw JSON; it calls no code of `webhook`."""
