"""Reports for operators: the status document and ServiceStatus objects."""
