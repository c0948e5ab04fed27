"""From what a producer asks to staged records: admission, properties, put; and the way in for the broker's own."""
