"""Node rows by name, and which of them have changed: calls keep what they found of the others."""

from collections.abc import Set as AbstractSet

from webhook.core.scheduling.node_table import NodeRow

_LOG_MIN = 1024


class NodeRows:
    """Rows that change one by one. `by_name` is for reading."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeRow] = {}
        self._log: list[str] = []
        """Names of nodes in the order of their changes since `_first`."""
        self._first = 0

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._first + len(self._log)

    def put(self, row: NodeRow) -> None:
        """Add or replace the row of a node."""
        self.by_name[row.node.name] = row
        self._changed(row.node.name)

    def drop(self, name: str) -> None:
        """Remove the row of a node, if there is one."""
        if self.by_name.pop(name, None) is not None:
            self._changed(name)

    def changed_since(self, version: int) -> AbstractSet[str] | None:
        """Return the nodes whose row is another one since a version, or is gone; None: that is not known any more."""
        return None if version < self._first else set(self._log[version - self._first :])

    def _changed(self, name: str) -> None:
        if len(self._log) >= max(_LOG_MIN, 4 * len(self.by_name)):
            self._first += len(self._log)
            self._log.clear()
        self._log.append(name)
