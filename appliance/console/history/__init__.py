"""What was measured over the last days and months: taken every 30 seconds, kept in a file of its own.

Pages, the API and alert rules ask `series.series()`.
"""
