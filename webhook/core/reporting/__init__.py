"""Reports: the status document and ServiceStatus objects for operators, records of admissions for `podgate replay`."""
