"""Objects that people ask `podgate explain` about: Pods, workloads of Kubernetes, and those of other kinds."""

import pytest

from webhook.commands.exception_target import parse_exception_target
from webhook.commands.explain_target import parse_target
from webhook.errors import UserError


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["web-x7"], "pod ml/web-x7"),
        (["pod", "shop/web-x7"], "pod shop/web-x7"),
        (["Pod/web-x7"], "pod ml/web-x7"),
        (["deploy/web"], "deployment.apps ml/web"),
        (["deployments.apps/web"], "deployment.apps ml/web"),
        (["deployments.v1.apps", "web"], "deployment.apps ml/web"),
        (["job/web"], "job.batch ml/web"),
        (["job.batch", "shop/web"], "job.batch shop/web"),
        (["job.batch.volcano.sh/web"], "job.batch.volcano.sh ml/web"),
        (["jobsets.v1alpha2.jobset.x-k8s.io/web"], "jobsets.jobset.x-k8s.io ml/web"),
        (["RayCluster.ray.io", "web"], "raycluster.ray.io ml/web"),
        (["jobset/web"], "jobset.jobset.x-k8s.io ml/web"),
        (["rollouts", "web"], "rollouts.argoproj.io ml/web"),
        (["train.example.com/web"], "train.example.com ml/web"),
        (["statefulset.apps.kruise.io/web"], "statefulset.apps.kruise.io ml/web"),
    ],
)
def test_a_workload_is_named_as_for_kubectl(words: list[str], shown: str) -> None:
    found = parse_target(words, "ml")
    assert str(found) == shown
    assert found.is_pod is shown.startswith("pod ")


@pytest.mark.parametrize("kind", ["train", "service", "ingress.networking.k8s.io", "deployment.batch", "x.../a"])
def test_what_makes_no_pods_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match="is no kind of workload") as failure:
        parse_target([f"{kind}/web" if "/" not in kind else kind], "ml")
    assert "KIND.GROUP/NAME" in failure.value.remedy


def test_an_exception_is_for_workloads_of_kubernetes_only() -> None:
    with pytest.raises(UserError, match="not a workload whose Pods Kubernetes creates"):
        parse_exception_target("jobset.jobset.x-k8s.io/web", None, "ml")
