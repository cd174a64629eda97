"""Signatures that simulations verify again and again."""

from collections.abc import Iterator
from functools import lru_cache
from unittest import mock

import pytest

from certs import ca_generations
from certs.inspection import is_signed_by


@pytest.fixture(autouse=True, scope="package")
def each_signature_is_verified_once() -> Iterator[None]:
    """Cache `is_signed_by`, a function of its two certificates."""
    with mock.patch.object(ca_generations, is_signed_by.__name__, lru_cache(maxsize=10_000)(is_signed_by)):
        yield
