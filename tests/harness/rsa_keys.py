"""RSA keys: of any size, and of the form in CVE-2017-15361."""

import math
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa

_EXPONENT = 65537
_PRIMES_OF_A_2048_BIT_KEY = 126
_FACTORS_AND_POWERS = (8991598510643520, 1294162851), (9066034698680029, 3211120711)
"""k and a of two primes. A search takes 0.6 s of CPU, in each worker, because tests are collected with the key."""


@cache
def rsa_key(bits: int, exponent: int = _EXPONENT) -> rsa.RSAPrivateKey:
    """Return a new key, the same in each test of a process."""
    return rsa.generate_private_key(exponent, bits)


@cache
def roca_key() -> rsa.RSAPrivateKey:
    """Return a key whose primes are k*M + 65537**a mod M, M being the product of the first 126 primes."""
    product = math.prod(_find_primes(_PRIMES_OF_A_2048_BIT_KEY))
    p, q = (factor * product + pow(_EXPONENT, power, product) for factor, power in _FACTORS_AND_POWERS)
    phi = (p - 1) * (q - 1)
    d = pow(_EXPONENT, -1, phi)
    numbers = rsa.RSAPrivateNumbers(
        p,
        q,
        d,
        rsa.rsa_crt_dmp1(d, p),
        rsa.rsa_crt_dmq1(d, q),
        rsa.rsa_crt_iqmp(p, q),
        rsa.RSAPublicNumbers(_EXPONENT, p * q),
    )
    return numbers.private_key()


def _find_primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found
