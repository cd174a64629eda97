"""The rollout's state in memory: as the real one, which the same contract tests."""

from webhook.core.rollout.state import RolloutState, decode_state, encode_state
from webhook.errors import RolloutError


class StateCell:
    """The one state object. `error`: why it cannot be read; "" while it can."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.version = 0
        self.error = ""

    @property
    def state(self) -> RolloutState | None:
        return None if self.text is None else decode_state(self.text)

    def put(self, state: RolloutState | None) -> None:
        self.text = None if state is None else encode_state(state)
        self.version += 1


class MemoryStates:
    """A `ports.RolloutStateStore` of one process."""

    def __init__(self, cell: StateCell) -> None:
        self._cell = cell
        self._version = -1

    async def read(self) -> RolloutState | None:
        if self._cell.error:
            raise RolloutError(self._cell.error)
        self._version = self._cell.version
        return self._cell.state

    async def write(self, state: RolloutState) -> bool:
        if self._version != self._cell.version:
            return False
        self._cell.put(state)
        self._version = self._cell.version
        return True
