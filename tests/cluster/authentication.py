"""Helpers of the `authentication` tests that other tests use, too."""

from tests.cluster.installation import Installation


def is_rewritten(installation: Installation, namespace: str) -> bool:
    """Create a Pod; return whether it was rewritten."""
    status, pod = installation.create_pod(namespace)
    assert status == 201, pod
    return bool(
        pod["spec"]["schedulerName"] == "podgate-scheduler" and "podgate.io/service" in pod["metadata"]["labels"]
    )
