"""Token issuer in a folder of files, for use without the controller: signing keys, key set and token."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from certs import signing_keys
from certs.errors import CertsError
from certs.files import lock_folder, read, write
from certs.token_rotation import Issuer, TokenState, TokenStep, find_next_step

KEYS, KEY_SET, TOKEN = "keys.json", "jwks.json", "token"


class TokenFolder:
    """The folder of one issuer; `is_dry` writes nothing."""

    def __init__(self, path: Path, *, is_dry: bool = False) -> None:
        self._path = path
        self._is_dry = is_dry

    def rotate(self, issuer: Issuer, now: int) -> Iterator[str]:
        """Take all steps that are due, and yield their descriptions."""
        with self._lock():
            state = self._read()
            while (step := find_next_step(state, issuer, now)) is not None:
                if not self._is_dry:
                    self._write(step)
                yield step.text
                state = _apply_step(state, step)

    def _lock(self) -> AbstractContextManager[None]:
        if self._is_dry:
            return nullcontext()
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CertsError(f"{self._path}: cannot be created: {error.strerror}", "choose a writable folder") from None
        return lock_folder(self._path)

    def _read(self) -> TokenState:
        keys, key_set, token = (self._read_file(name) for name in (KEYS, KEY_SET, TOKEN))
        stored = signing_keys.decode(keys, str(self._path / KEYS)) if keys is not None else ()
        text = token.decode(errors="replace").strip() if token else None
        return TokenState(stored, signing_keys.parse_key_set(key_set), text)

    def _read_file(self, name: str) -> bytes | None:
        try:
            return read(self._path / name)
        except CertsError:
            if (self._path / name).exists():
                raise
            return None

    def _write(self, step: TokenStep) -> None:
        """Write in this order: a key before what it signs, the key set before the token."""
        if step.keys is not None:
            write(self._path / KEYS, signing_keys.encode(step.keys), secret=True, replace=True)
        if step.key_set is not None:
            write(self._path / KEY_SET, step.key_set.encode(), secret=False, replace=True)
        if step.token is not None:
            write(self._path / TOKEN, step.token.encode() + b"\n", secret=True, replace=True)


def _apply_step(state: TokenState, step: TokenStep) -> TokenState:
    found = state if step.keys is None else replace(state, keys=step.keys)
    if step.key_set is not None:
        found = replace(found, published=signing_keys.parse_key_set(step.key_set.encode()))
    return found if step.token is None else replace(found, token=step.token)
