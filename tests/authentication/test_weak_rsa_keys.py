"""Detection of weak RSA keys, by generated weak and sound keys."""

import math

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.harness.rsa_keys import roca_key
from webhook.authentication.certificates.weak_rsa_keys import _PRIMES, find_weakness


def test_roca_key_is_detected_by_its_modulus() -> None:
    reason = find_weakness(roca_key().public_key())
    assert reason is not None
    assert "CVE-2017-15361" in reason


def test_sound_keys_are_accepted() -> None:
    for _ in range(5):
        assert find_weakness(rsa.generate_private_key(65537, 2048).public_key()) is None
    assert find_weakness(ec.generate_private_key(ec.SECP256R1()).public_key()) is None


def test_key_without_the_fingerprint_modulo_one_prime_is_accepted() -> None:
    """A modulus with the fingerprint except modulo 11, where it is no power of 65537."""
    weak = roca_key().public_key().public_numbers().n
    other_primes = math.prod(prime for prime in _PRIMES if prime != 11) * 2
    for factor in range(1, 11):
        modulus = weak + factor * other_primes
        if modulus % 11 not in (1, 10):  # the powers of 65537, which is -1 there
            numbers = rsa.RSAPublicNumbers(65537, modulus)
            assert find_weakness(numbers.public_key()) is None
