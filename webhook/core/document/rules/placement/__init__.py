"""Rules for the `placement` stanza."""
