"""`podgate scheduler config`."""

from hashlib import sha256

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cli.documented_commands import ROOT

MANIFEST = ROOT / "manifests/scheduler/34-scheduler.yaml"


def test_manifest_has_what_the_command_prints() -> None:
    config_map, deployment, *_ = yaml.safe_load_all(MANIFEST.read_text())
    text = podgate("scheduler", "config").out
    assert config_map["data"]["config.yaml"] == text
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"podgate.io/configuration-sha256": sha256(text.encode()).hexdigest()}


def test_both_formats_are_the_same_document() -> None:
    assert yaml.safe_load(podgate("scheduler", "config").out) == podgate("scheduler", "config", "-o", "json").document


def test_options_are_in_the_document() -> None:
    options = {
        "--url-prefix": "https://10.96.0.20:8444/",
        "--server-name": "podgate-extender",
        "--ca-file": "/pki/ca.crt",
        "--cert-file": "/pki/s.crt",
        "--key-file": "/pki/s.key",
        "--kubeconfig": "/etc/kubernetes/scheduler.conf",
        "--lease": "kube-system/second",
        "--weight": "2",
        "--http-timeout": "300ms",
        "--percentage-of-nodes-to-score": "0",
    }
    given = [word for pair in options.items() for word in pair]
    found = podgate("scheduler", "config", "--profile=one", "--profile=two", *given, "-o", "json").document
    assert found["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    assert found["leaderElection"] == {
        "leaderElect": True,
        "resourceNamespace": "kube-system",
        "resourceName": "second",
    }
    assert found["percentageOfNodesToScore"] == 0
    assert found["profiles"] == [{"schedulerName": "one"}, {"schedulerName": "two"}]
    (extender,) = found["extenders"]
    assert extender["urlPrefix"] == "https://10.96.0.20:8444"
    assert (extender["weight"], extender["httpTimeout"]) == (2, "300ms")
    assert extender["tlsConfig"] == {
        "caFile": "/pki/ca.crt",
        "certFile": "/pki/s.crt",
        "keyFile": "/pki/s.key",
        "serverName": "podgate-extender",
    }


def test_single_replica_elects_no_leader() -> None:
    found = podgate("scheduler", "config", "--lease=", "-o", "json").document
    assert found["leaderElection"] == {"leaderElect": False}


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--url-prefix=http://extender", "--url-prefix 'http://extender': must be https"),
        (
            "--url-prefix=https://h/filter",
            "--url-prefix 'https://h/filter': the extender answers at no path /filter: write",
        ),
        ("--server-name=", "--server-name '': not a DNS name: write a DNS name of the extender's certificate"),
        (
            "--http-timeout=1h",
            "--http-timeout '1h': above 30s: while the extender hangs, each Pod holds all others up twice as long",
        ),
        ("--http-timeout=1d", "--http-timeout '1d': not a Go duration"),
        ("--ca-file=ca.crt", "--ca-file 'ca.crt': not an absolute path: write one such as"),
        ("--kubeconfig=~/.kube/config", "--kubeconfig '~/.kube/config': not an absolute path"),
        (
            "--profile=default-scheduler",
            "--profile 'default-scheduler': the cluster's own kube-scheduler has it, and two would bind the same Pods",
        ),
        ("--profile=A_b", "--profile 'A_b': not a name of a scheduler: write one such as podgate-scheduler"),
        ("--lease=second", "--lease 'second': not a namespace and a name: write NAMESPACE/NAME"),
        ("--weight=0", "Invalid value for '--weight'"),
    ],
)
def test_bad_option_is_named_with_a_remedy(option: str, error: str) -> None:
    done = podgate("scheduler", "config", option)
    assert (done.code, done.out) == (2, "")
    assert error in done.error


def test_default_scheduler_may_have_the_extender_in_its_own_configuration() -> None:
    given = ("--profile=default-scheduler", "--lease=kube-system/kube-scheduler", "-o", "json")
    found = podgate("scheduler", "config", *given).document
    assert found["profiles"] == [{"schedulerName": "default-scheduler"}]


def test_name_given_twice_is_an_error() -> None:
    assert "--profile 'one': given 2 times" in podgate("scheduler", "config", "--profile=one", "--profile=one").error
