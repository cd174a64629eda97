"""Helpers of the `place_reporter` tests that other tests use, too."""


class FakePlaceEvents:
    """A `ports.PlaceEvents` that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.dropped = 0

    def offer(self, namespace: str, name: str, uid: str, note: str, occasion: str) -> None:  # noqa: ARG002  as in the port
        self.notes.append((uid, note))

    def offer_expired(self, namespace: str, name: str, uid: str, note: str, *, is_kept: bool) -> None:  # noqa: ARG002  as in the port
        self.notes.append((uid, f"{'kept' if is_kept else 'deleted'}: {note}"))

    def drop(self) -> None:
        self.dropped += 1

    async def run(self) -> None: ...
