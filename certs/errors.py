"""Errors about certificates and keys that a user can fix."""


class CertsError(Exception):
    """A user can fix it; `remedy` says how."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
