"""What can go wrong with certificates and keys that a user can mend."""


class CertsError(Exception):
    """The user can mend it; `remedy` says how."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
