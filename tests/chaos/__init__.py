"""Chaos: the whole of Podgate on a real control plane, faults at random from a seed, and a history to judge."""
