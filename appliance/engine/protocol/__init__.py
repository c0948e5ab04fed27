"""What travels and what is stored, byte for byte. PURE: no I/O, no clock, no thread, no log."""
