"""Removal from the store: expired log files, queue files behind them, deleted topics."""
