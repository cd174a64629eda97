"""Fuzzing: functions of bytes, each with an oracle, their corpora, and runs under coverage guidance."""
