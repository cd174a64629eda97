"""Policy: the document's model, the matching of Pods to services, and the recent history of policies."""
