"""Support code that knows nothing of admission: back-off, watched files, input files, redaction."""
