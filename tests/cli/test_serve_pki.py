"""`podgate serve --pki`: defaults for the files of a folder, and for the cluster."""

from pathlib import Path

import pytest

from tests.cli.command_runner import podgate
from webhook.settings import Settings
from webhook.support.kubeconfig import Kubeconfig


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Settings]:
    """Return the settings of servers, which are not started, and fill the folder."""
    found: list[Settings] = []
    monkeypatch.setattr("webhook.app.server.run", found.append)
    for name in ("server.crt", "server.key", "ca.crt", "jwks.json", "identities.yaml", "kubeconfig", "other.yaml"):
        (tmp_path / name).touch()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    return found


def test_folder_gives_the_files_and_the_users_kubeconfig_the_cluster(started: list[Settings], tmp_path: Path) -> None:
    done = podgate("serve", "--pki", tmp_path)
    assert done.code == 0, done.err
    [settings] = started
    assert (settings.tls_cert, settings.tls_key) == (tmp_path / "server.crt", tmp_path / "server.key")
    assert settings.serving_ca == settings.client_ca == tmp_path / "ca.crt"
    assert (settings.jwks, settings.identities) == (tmp_path / "jwks.json", tmp_path / "identities.yaml")
    assert settings.kubeconfig == Kubeconfig((tmp_path / "kubeconfig",))
    assert settings.webhook_configurations == "keep"


def test_flags_and_variables_win(started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_JWKS", str(tmp_path / "other.yaml"))
    done = podgate("serve", "--pki", tmp_path, "--identities", tmp_path / "other.yaml")
    assert done.code == 0, done.err
    [settings] = started
    assert settings.identities == settings.jwks == tmp_path / "other.yaml"


def test_policy_file_needs_no_cluster(started: list[Settings], tmp_path: Path) -> None:
    done = podgate("serve", "--pki", tmp_path, "--policy", tmp_path / "other.yaml")
    assert done.code == 0, done.err
    assert started[0].kubeconfig is None
