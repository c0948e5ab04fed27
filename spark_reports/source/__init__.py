"""The Spark data source `rocketbox`: messages of a RocketMQ log as rows.

options -> plan: which bytes, in which partitions -> files_reader: whole records -> columns: Arrow record batches
"""
