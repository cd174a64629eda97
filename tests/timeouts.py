"""Limit of a wait in a test: it ends a hang, and measures nothing.

A starved machine takes a minute for the work of a second. The limit is below the 120 s after which a server closes a
silent connection on its own account: a connection that should be cut earlier is found to stay.
"""

HANG_SECONDS = 115.0
