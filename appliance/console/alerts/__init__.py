"""Alerts: rules over measured figures, the channels that their notices go to, and silences."""
