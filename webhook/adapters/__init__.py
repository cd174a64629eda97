"""What stands behind the ports. Adapters do not know each other; only the wiring sees them."""
