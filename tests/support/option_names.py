"""Names in our answer to GET_BROKER_CONFIG (26) that Apache's recorded answer does not have."""

#: The tools of 4.9 ask for the first two; `haSlaveFallbehindMax` exists in 4.9 only. The others are ours; those with
#: File at their end are paths.
NOT_APACHES = frozenset((
    "filterServerNums", "useTLS", "haSlaveFallbehindMax",
    "haSecretFile", "haSlaveAddresses", "maxDeliveryEventBytes", "schemaRegistry", "schemaRegistrySecretFile",
))  # fmt: skip
