from pathlib import Path

import pytest

from tests.compose import image


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the content of the image: `opt/podgate`, without test tools."""
    return image.build(tmp_path_factory.mktemp("image"))
