"""Replication on Apache's plain HA stream: the log of one broker, copied byte by byte to others."""
