"""Pods in Redis: their charges, sightings and refunds, and the index of those that wait."""
