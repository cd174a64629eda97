"""Decision records in Redis, shared by replicas."""
