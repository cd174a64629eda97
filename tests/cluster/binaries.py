"""The programs of a control plane: built once from pinned, checksummed modules into a cache outside the tree."""

import hashlib
import json
import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import click

from tests.cluster.toolchain import BUILD_FLAGS, build, go, hold_lock, run_go

TOOLS = Path(__file__).parent / "tools"
OUR_STAGES = TOOLS / "kwok" / "stages"

_KUBERNETES = " ".join(
    f"-X k8s.io/{package}/version.gitVersion=v1.36.3"
    f" -X k8s.io/{package}/version.gitMajor=1 -X k8s.io/{package}/version.gitMinor=36"
    for package in ("component-base", "client-go/pkg")  # without these flags the version is v0.0.0
)

#: Stages of simulated Nodes and Pods from kwok's module; OUR_STAGES has the others.
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True)
class Tool:
    """One program: the folder of its go.mod, its package, and its linker flags."""

    module: str
    package: str
    linker_flags: str = ""


_TOOLS = {
    "etcd": Tool("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Tool("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES),
    "kube-scheduler": Tool("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", _KUBERNETES),
    "kube-controller-manager": Tool("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", _KUBERNETES),
    "kubectl": Tool("kubernetes", "k8s.io/kubernetes/cmd/kubectl", _KUBERNETES),
    "kwok": Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
}


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kube_controller_manager: Path
    kubectl: Path
    kwok: Path
    kwok_stages: tuple[Path, ...]


def binaries() -> Binaries:
    """Return all programs: those in KUBEBUILDER_ASSETS, and the others from the cache, built the first time."""
    folder = cache() / f"controlplane-{_digest()}"
    assets = {name: path for name in _TOOLS if (path := _asset(name))}
    needed = [name for name in _TOOLS if name not in assets]
    stages = folder / "stages"
    if not stages.exists() or not all((folder / name).exists() for name in needed):
        with hold_lock(folder):
            _build_missing(needed, folder, go(cache()))
    paths = {name.replace("-", "_"): assets.get(name, folder / name) for name in _TOOLS}
    return Binaries(**paths, kwok_stages=(*sorted(stages.iterdir()), *sorted(OUR_STAGES.iterdir())))


def cache() -> Path:
    """Return the cache folder outside the tree, which persists between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "podgate"


def _asset(name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    path = Path(assets).absolute() / name if assets else None
    return path if path and path.is_file() and os.access(path, os.X_OK) else None


def _digest() -> str:
    """Return a digest of what a build depends on: modules, checksums, flags, and the machine."""
    files = sorted([*TOOLS.glob("*/go.mod"), *TOOLS.glob("*/go.sum")])
    parts = [path.read_bytes() for path in files]
    parts.append(repr((BUILD_FLAGS, _TOOLS, _KWOK_STAGES, platform.system(), platform.machine())).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _build_missing(needed: list[str], folder: Path, compiler: Path) -> None:
    folder.mkdir(exist_ok=True)
    for draft in folder.glob(".*.*"):
        draft.unlink()
    missing = [name for name in needed if not (folder / name).exists()]
    for number, name in enumerate(missing, 1):
        click.echo(f"[{number}/{len(missing)}] building {name} ...", err=True)
        started = time.monotonic()
        tool = _TOOLS[name]
        build(compiler, TOOLS / tool.module, tool.package, folder / name, tool.linker_flags)
        click.echo(f"[{number}/{len(missing)}] built {name} in {time.monotonic() - started:.0f} s", err=True)
    if not (folder / "stages").exists():
        _collect_stages(folder / "stages", compiler)


def kwok_metrics() -> tuple[Path, ...]:
    """Return kwok's configuration of kubelets' resource metrics, which follow annotations of the Pods."""
    folder = _kwok_source(go(cache())) / "kustomize" / "metrics"
    return folder / "resource" / "metrics-resource.yaml", folder / "usage" / "usage-from-annotation.yaml"


def _kwok_source(compiler: Path) -> Path:
    return Path(json.loads(run_go(compiler, TOOLS / "kwok", "mod", "download", "-json", "sigs.k8s.io/kwok"))["Dir"])


def _collect_stages(folder: Path, compiler: Path) -> None:
    source = _kwok_source(compiler)
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for name in _KWOK_STAGES:
        path = source / "kustomize" / "stage" / name
        (draft / path.name).write_bytes(path.read_bytes())
    draft.rename(folder)
