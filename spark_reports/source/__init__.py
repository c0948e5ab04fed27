"""The Spark data source `rocketbox`: messages of a RocketMQ log as rows.

options -> plan: bytes to read, in partitions -> files_reader: whole records -> columns: Arrow record batches
"""
