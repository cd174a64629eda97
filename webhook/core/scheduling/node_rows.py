"""Node rows by name, and which of them have changed."""

from webhook.core.scheduling.changes import ChangeLog
from webhook.core.scheduling.node_table import NodeRow


class NodeRows:
    """Rows that change one by one. `by_name` is for reading."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeRow] = {}
        self.changes = ChangeLog()

    def put(self, row: NodeRow) -> None:
        """Add or replace the row of a node."""
        self.by_name[row.node.name] = row
        self.changes.record((row.node.name,), len(self.by_name))

    def drop(self, name: str) -> None:
        """Remove the row of a node, if there is one."""
        if self.by_name.pop(name, None) is not None:
            self.changes.record((name,), len(self.by_name))
