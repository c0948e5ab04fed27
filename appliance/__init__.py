"""RocketBox: a RocketMQ-compatible broker and name server with a console, in one process."""

__version__ = "0.1.0"
