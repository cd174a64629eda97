"""Weak RSA keys: too short, or with the primes of CVE-2017-15361 (ROCA)."""

from cryptography.hazmat.primitives.asymmetric import rsa

RSA_BITS_MIN = 2048
_EXPONENT = 65537
_PRIMES = (
    *(3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109),
    *(113, 127, 131, 137, 139, 149, 151, 157, 163, 167),
)


def find_weakness(key: object) -> str | None:
    """Return why a public key is weak; None if no weakness is known."""
    if not isinstance(key, rsa.RSAPublicKey):
        return None
    if key.key_size < RSA_BITS_MIN:
        return f"an RSA key of {key.key_size} bits, fewer than {RSA_BITS_MIN}"
    if _is_roca(key.public_numbers().n):
        return "an RSA key whose private half can be computed (CVE-2017-15361, ROCA)"
    return None


def _is_roca(modulus: int) -> bool:
    """Return whether a modulus has the ROCA fingerprint: modulo each small prime it is a power of 65537.

    The faulty library generated primes of the form k*M + 65537**a mod M, with M the product of the first primes. One in
    a hundred million other keys has the fingerprint too.
    """
    return all(modulus % prime in powers for prime, powers in _POWERS.items())


def _list_powers(prime: int) -> frozenset[int]:
    found, power = {1}, _EXPONENT % prime
    while power not in found:
        found.add(power)
        power = power * _EXPONENT % prime
    return frozenset(found)


_POWERS = {prime: _list_powers(prime) for prime in _PRIMES}
