"""Generated RSA keys of the form in CVE-2017-15361."""

import math
import secrets
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa

_EXPONENT = 65537
_PRIMES_OF_A_2048_BIT_KEY = 126
_PRIME_BITS = 1024


@cache
def roca_key() -> rsa.RSAPrivateKey:
    """Return a key whose primes are k*M + 65537**a mod M, M being the product of the first 126 primes."""
    product = math.prod(_first_primes(_PRIMES_OF_A_2048_BIT_KEY))
    p, q = _prime(product), _prime(product)
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


def _prime(product: int) -> int:
    least, most = (3 << (_PRIME_BITS - 2)) // product + 1, (1 << _PRIME_BITS) // product - 1
    while True:
        factor = least + secrets.randbelow(most - least)
        candidate = factor * product + pow(_EXPONENT, secrets.randbits(64), product)
        if _is_prime(candidate) and math.gcd(candidate - 1, _EXPONENT) == 1:
            return candidate


def _first_primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _is_prime(number: int) -> bool:
    """Say whether it passes twenty rounds of Miller and Rabin."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(20):
        power = pow(secrets.randbelow(number - 3) + 2, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True
