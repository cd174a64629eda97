"""Cost of a Deployment's Pods on a real control plane: output of a short run."""

from tests.bench import deployments


def test_a_deployment_is_measured_with_shares_and_without() -> None:
    (head, *lines), figures = deployments.measure(rounds=1, pods=10)
    assert "10 Pods" in head
    assert [row["service"] for row in figures] == [deployments.WITHOUT, deployments.WITH]
    assert len(lines) == len(figures)
    without, divided = figures
    assert divided["gets"].median <= 2, "the owner is read once by each server"
    assert divided["lists"].median <= 2
    assert divided["commands"].median > without["commands"].median > 0
    assert all(row["servers"].median > 0 for row in figures)
