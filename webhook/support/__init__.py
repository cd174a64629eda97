"""Support code that knows nothing of admission: caches, watched files, redaction."""
