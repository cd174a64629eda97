"""Installation: the objects of each way to run Podgate, their order, the record of it, and probes that prove calls."""
