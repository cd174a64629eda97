"""Composition: the runner of each process, and the adapter behind each port."""
