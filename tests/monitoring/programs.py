"""Prometheus and promtool: those on the PATH, or Debian's package in a cache outside the tree."""

import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.debian_package import unpack_debian_package


@dataclass(frozen=True)
class PrometheusPrograms:
    """Paths of the programs."""

    prometheus: Path
    promtool: Path


@functools.cache
def programs() -> PrometheusPrograms:
    """Return both programs; the first call downloads them, unless both are on the PATH."""
    on_path = shutil.which("prometheus"), shutil.which("promtool")
    if on_path[0] is not None and on_path[1] is not None:
        return PrometheusPrograms(Path(on_path[0]), Path(on_path[1]))
    folder = unpack_debian_package("prometheus", "install prometheus and promtool") / "usr" / "bin"
    return PrometheusPrograms(folder / "prometheus", folder / "promtool")
