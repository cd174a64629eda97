"""Outcomes pushed by reporters, from the HTTP endpoint to the breakers."""
