"""The pure decision core: no I/O, no clock, no environment, no logging. Time and facts are arguments."""
