"""Build cache of the control plane's programs, KUBEBUILDER_ASSETS, and failed builds."""

from pathlib import Path

import pytest

from tests.cluster import binaries as building
from tests.cluster import toolchain
from tests.cluster.binaries import binaries
from tests.cluster.toolchain import BuildError


def no_compiler(*_: object) -> str:
    raise AssertionError("the compiler was called")


def test_second_run_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    binaries()
    monkeypatch.setattr(building, "build", no_compiler)
    monkeypatch.setattr(building, "run_go", no_compiler)
    programs = binaries()
    assert programs.kube_apiserver.stat().st_size > 0
    assert {"node-initialize.yaml", "pod-ready.yaml"} <= {path.name for path in programs.kwok_stages}


def test_binaries_in_the_assets_folder_are_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kube-apiserver", "etcd", "kubectl"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setattr(building, "build", no_compiler)
    monkeypatch.setattr(building, "run_go", no_compiler)
    programs = binaries()
    assert {programs.kube_apiserver.parent, programs.etcd.parent, programs.kubectl.parent} == {tmp_path}
    assert programs.kube_scheduler.parent == programs.kwok.parent != tmp_path


def test_failed_build_reports_the_compiler_output_and_leaves_no_program(tmp_path: Path) -> None:
    compiler = toolchain.go(building.cache())
    missing_package = "go.etcd.io/etcd/server/v3/no-such-package"
    with pytest.raises(BuildError, match="no-such-package"):
        toolchain.build(compiler, building.TOOLS / "etcd", missing_package, tmp_path / "program")
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize(
    ("version", "is_used"), [("go1.26.8", True), ("go1.27", True), ("go1.25.5", False), ("", False)]
)
def test_go_on_the_path_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, version: str, is_used: bool
) -> None:
    on_path = tmp_path / "bin" / "go"
    on_path.parent.mkdir()
    on_path.write_text(f"#!/bin/sh\necho {version}\n")
    on_path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "_install", lambda folder: folder.mkdir(parents=True))
    assert (toolchain.go(tmp_path / "cache") == on_path) is is_used
