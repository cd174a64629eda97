"""Installation: the objects of each way to run Podgate, their order, the record, and probes that prove calls."""
