"""The Prometheus operator's CustomResourceDefinitions, from its Go module in a cache outside the tree."""

import json
import shutil
from pathlib import Path

import click

from tests.cluster.binaries import cache
from tests.cluster.toolchain import BuildError, go, hold_lock, run_go

_MODULE = "github.com/prometheus-operator/prometheus-operator"
_VERSION, _SUM = "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
_FILES = [f"monitoring.coreos.com_{kind}.yaml" for kind in ("podmonitors", "prometheusrules", "servicemonitors")]


def operator_crds() -> list[Path]:
    """Return the files of the kinds in manifests/monitoring; the first call downloads them."""
    folder = cache() / f"prometheus-operator-{_VERSION}"
    if not folder.exists():
        with hold_lock(folder):
            if not folder.exists():
                _fetch(folder)
    return [folder / name for name in _FILES]


def _fetch(folder: Path) -> None:
    click.echo(f"fetching the definitions of {_MODULE} into {folder}", err=True)
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    found = json.loads(run_go(go(cache()), draft, "mod", "download", "-json", f"{_MODULE}@{_VERSION}"))
    if found["Sum"] != _SUM:
        raise BuildError(f"{_MODULE}@{_VERSION} has the checksum {found['Sum']}, not {_SUM}")
    for name in _FILES:
        (draft / name).write_bytes((Path(found["Dir"]) / "example" / "prometheus-operator-crd" / name).read_bytes())
    draft.rename(folder)
