"""Alerts: rules over measured figures, whom they are told to, and when they are silent."""
