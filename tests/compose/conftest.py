from pathlib import Path

import pytest

from tests.compose import image


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that holds what the image holds: `opt/podgate`, without a tool of the tests."""
    return image.build(tmp_path_factory.mktemp("image"))
