"""Options of `podgate install`: combinations that do not fit are refused before anything is read or written."""

from pathlib import Path

import pytest

from tests.cli.command_runner import podgate

OUTSIDE = ("--server-url", "https://127.0.0.1:8443")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (("--replicas", "2"), "--replicas 2: counters in memory are one server's"),
        (("--store", "http://redis"), "--store 'http://redis': write memory, or the URL of a Redis"),
        (("--store", "redis://u:secret@r/0"), "--store 'redis://***@r/0': everybody who reads Pods could read"),
        (("--reduced", "--store", "redis://r/0"), "--store 'redis://r/0': not with --reduced"),
        (("--reduced", "--certificates", "own"), "--reduced: not with --certificates own"),
        (("--status-url", "http://h:1"), "--status-url: is for a server outside the cluster"),
        (("--server-url", "http://h"), "--server-url 'http://h': must be https"),
        ((*OUTSIDE, "--status-url", "https://h"), "--status-url 'https://h': must be http"),
        ((*OUTSIDE, "--reduced"), "--reduced: not with --server-url"),
        ((*OUTSIDE, "--certificates", "own"), "--certificates: not with --server-url"),
        ((*OUTSIDE, "--image", "i"), "--image: not with --server-url"),
        ((*OUTSIDE, "--replicas", "1"), "--replicas: not with --server-url"),
        ((*OUTSIDE, "--apiserver-files"), "--apiserver-files: not with --server-url"),
        ((*OUTSIDE, "--with-scheduler"), "--with-scheduler: not with --server-url"),
        (("--scheduler-image", "i"), "--scheduler-image: no scheduler is installed"),
        (("--wait", "soon"), "--wait 'soon'"),
        (("--policy", "/no/such/file"), "/no/such/file"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: tuple[str, ...], place: str) -> None:
    pki = tmp_path / "pki"
    done = podgate("install", "--kubeconfig", tmp_path / "none", "--pki", pki, *options)
    assert (done.code, done.out) == (2, "")
    assert place in done.error
    assert "secret" not in done.error
    assert not pki.exists()


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_missing_kubeconfig_is_named(tmp_path: Path, command: str) -> None:
    done = podgate(command, "--kubeconfig", tmp_path / "none")
    assert done.code == 2
    assert f"{tmp_path / 'none'}: cannot read the kubeconfig" in done.error
