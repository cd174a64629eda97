"""Decision records: kept by each server, shared by all of them, and searched."""
