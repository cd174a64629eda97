"""What all tests share: the one flag that rewrites golden files, and nothing else."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-goldens",
        action="store_true",
        help="rewrite the golden files with what the code says today; read the difference before it is kept",
    )


@pytest.fixture
def refresh_goldens(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--refresh-goldens"))
