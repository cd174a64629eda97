"""Encoded decision records: their parts in MessagePack, and the encoder of reviews."""
