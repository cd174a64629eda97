"""Signatures that simulations verify again and again."""

from collections.abc import Iterator
from functools import lru_cache
from unittest import mock

import pytest

from certs.inspection import signed_by


@pytest.fixture(autouse=True, scope="package")
def each_signature_is_verified_once() -> Iterator[None]:
    """Cache `signed_by`, a function of its two certificates: it was a quarter of the CPU time of these tests."""
    with mock.patch("certs.ca_generations.signed_by", lru_cache(maxsize=10_000)(signed_by)):
        yield
