import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose import sources
from tests.image.engine import Container, Engine, Image

EPOCH = 1_700_000_000
"""Time of both builds, as SOURCE_DATE_EPOCH."""


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(scope="session")
def image(engine: Engine) -> Image:
    return engine.build(sources.ROOT, "podgate:first", epoch=EPOCH)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another checkout: the same files at another path, with other times."""
    checkout = tmp_path_factory.mktemp("checkout")
    for path in sorted(sources.ROOT.iterdir(), reverse=True):
        if sources.is_in_build_context(path.name) or path.name in {"Dockerfile", ".dockerignore"}:
            _copy_without_times(path, checkout / path.name)
    return checkout


@pytest.fixture(scope="session")
def second_image(engine: Engine, checkout: Path) -> Image:
    return engine.build(checkout, "podgate:second", epoch=EPOCH)


@pytest.fixture(scope="session")
def container(engine: Engine, image: Image) -> Container:
    """Return a container that no test changes."""
    assert image.layers
    return engine.container("podgate:first")


def _copy_without_times(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, copy_function=shutil.copy)
    else:
        shutil.copy(path, target)
