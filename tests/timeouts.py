"""Limit of a wait in a test: it ends a hang, and measures nothing.

An overloaded machine takes a minute for the work of a second. The limit is below 120 s, after which a server closes any
idle connection: a test must fail if a connection that should be closed earlier stays open.
"""

HANG_SECONDS = 115.0
