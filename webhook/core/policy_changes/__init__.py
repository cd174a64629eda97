"""Changes of a policy: what differs, what a change costs, and the review of the policy's and overrides' ConfigMap."""
