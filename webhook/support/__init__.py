"""Support code independent of admission: caches, watched files, redaction."""
