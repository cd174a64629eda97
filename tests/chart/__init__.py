"""The Helm chart: linted, rendered for each way of running, and compared with the manifests."""
