"""FormatError: a text that violates a format, with reason and remedy."""


class FormatError(ValueError):
    """A text violates a format: reason and remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def must(holds: object, reason: str, remedy: str) -> None:
    if not holds:
        raise FormatError(reason, remedy)
