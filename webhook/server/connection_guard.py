"""Guard of the connections that calls use: client certificates, connection age, trust, and draining."""

from webhook.authentication.certificates.peer_recheck import PeerRecheck
from webhook.server.connection_table import ConnectionTable


class ConnectionGuard:
    """Checks and records the connection of each call."""

    def __init__(self, connections: ConnectionTable, peers: PeerRecheck) -> None:
        self.connections = connections
        self.trust = peers.trust
        """Return the current client CAs, another object after each change."""
        self.check_peer = peers.check
        """Check a Peer against the current CAs; AuthenticationError if it is no longer trusted."""
        self.record_request = connections.record_request
        """Record that a request header is complete; return False if the response should close the connection."""
        self.mark_trusted = connections.mark_trusted
        """Mark a connection over which an authenticated caller has sent a whole request."""

    @property
    def is_draining(self) -> bool:
        return self.connections.is_draining

    def drain(self) -> None:
        """From now on, every response closes its connection."""
        self.connections.is_draining = True
