"""Detection of weak RSA keys, by generated weak and sound keys."""

import math

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.harness.rsa_keys import roca_key
from webhook.authentication.certificates.weak_rsa_keys import _PRIMES, weakness


def test_roca_key_is_detected_by_its_modulus() -> None:
    found = weakness(roca_key().public_key())
    assert found is not None
    assert "CVE-2017-15361" in found


def test_sound_keys_are_taken() -> None:
    for _ in range(5):
        assert weakness(rsa.generate_private_key(65537, 2048).public_key()) is None
    assert weakness(ec.generate_private_key(ec.SECP256R1()).public_key()) is None


def test_one_prime_that_does_not_fit_is_enough_to_clear_a_key() -> None:
    """A modulus with the fingerprint but for one prime: what is congruent there to a number that is no power."""
    weak = roca_key().public_key().public_numbers().n
    others = math.prod(prime for prime in _PRIMES if prime != 11) * 2
    for factor in range(1, 11):
        modulus = weak + factor * others
        if modulus % 11 not in (1, 10):  # the powers of 65537, which is -1 there
            numbers = rsa.RSAPublicNumbers(65537, modulus)
            assert weakness(numbers.public_key()) is None
