"""Measured figures of the last days and months: sampled every 30 seconds, stored in their own file.

Pages, the API and alert rules read them with `series.series()`.
"""
