"""From a producer's request to staged records: admission, properties, put; and the entry for the broker's own ones."""
