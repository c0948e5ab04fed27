"""What each option of the configuration does, in a sentence for its page."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop

#: Option that has an effect here -> what it does.
OPTION_TEXTS: dict[str, str] = {
    "brokerName": gettext_noop(
        "The broker's name, which clients and mqadmin see; brokers of one name are a master and its slaves."
    ),
    "brokerId": gettext_noop("0 for a master, a number of its own for each slave."),
    "brokerClusterName": gettext_noop("The cluster that the broker belongs to, as mqadmin's -c names it."),
    "brokerIP2": gettext_noop("The address that slaves are told; empty: the one for clients."),
    "namesrvAddr": gettext_noop("Name servers to register with, host:port;...; empty: the one in this process."),
    "brokerPermission": gettext_noop(
        "What clients may do on this broker: 6 read and write, 4 read only, 2 write only."
    ),
    "defaultTopicQueueNums": gettext_noop("Most queues of a topic that is made by its first message."),
    "autoCreateTopicEnable": gettext_noop("The first message to an unknown topic makes it."),
    "autoCreateSubscriptionGroup": gettext_noop("A consumer of an unknown group makes it."),
    "clusterTopicEnable": gettext_noop("There is a topic with the cluster's name."),
    "brokerTopicEnable": gettext_noop("There is a topic with the broker's name."),
    "traceTopicEnable": gettext_noop("There is a topic for clients' message traces."),
    "msgTraceTopicName": gettext_noop("The name of the topic for traces."),
    "regionId": gettext_noop("The region that is added to each message."),
    "traceOn": gettext_noop("Tells clients that traces are wanted."),
    "longPollingEnable": gettext_noop("A pull that finds nothing waits for messages, as long as the client says."),
    "shortPollingTimeMills": gettext_noop("Without long polling: how long a pull that finds nothing waits, in ms."),
    "notifyConsumerIdsChangedEnable": gettext_noop("Members of a group are told at once when others come or go."),
    "registerNameServerPeriod": gettext_noop("Time between two registrations with name servers, in ms."),
    "registerBrokerTimeoutMills": gettext_noop("Longest wait for a name server's answer, in ms."),
    "useServerSideResetOffset": gettext_noop(
        "The broker itself keeps an offset that was reset until a consumer was told."
    ),
    "flushConsumerOffsetInterval": gettext_noop(
        "Time between two saves of the groups' offsets, in ms; a crash loses those committed since."
    ),
    "defaultQueryMaxNum": gettext_noop("Messages that a search by key answers where the client asks for no number."),
    "slaveReadEnable": gettext_noop("Consumers that are far behind are sent to a slave."),
    "enablePropertyFilter": gettext_noop("Consumers may filter by SQL92 expressions."),
    "filterSupportRetry": gettext_noop("Retries are filtered by the group's expression again."),
    "filterDataCleanTimeSpan": gettext_noop("For how long expressions of groups that left are kept, in ms."),
    "maxErrorRateOfBloomFilter": gettext_noop("Part of a format that Apache's brokers share: percent of wrong hits."),
    "expectConsumerNumUseFilter": gettext_noop("Part of a format that Apache's brokers share: groups that filter."),
    "channelExpiredTimeout": gettext_noop("Silence after which a client counts as gone, in ms."),
    "rejectTransactionMessage": gettext_noop("Transactions are refused."),
    "transactionTimeOut": gettext_noop("Age at which an open transaction's producer is asked first, in ms."),
    "transactionCheckMax": gettext_noop("How often a producer is asked before its transaction is set aside."),
    "transactionCheckInterval": gettext_noop("Time between two questions about a transaction, in ms."),
    "litePullMessageEnable": gettext_noop("Consumers may use lite pulls."),
    "storeReplyMessageEnable": gettext_noop("Replies to requests are stored, too."),
    "startAcceptSendRequestTimeStamp": gettext_noop("Sends before this time are refused, ms since 1970."),
    "recallMessageEnable": gettext_noop("Messages that wait for a time of their own can be recalled."),
    "allowRecallWhenBrokerNotWriteable": gettext_noop("Recalls are taken on a broker that takes no other messages."),
    "accessControl": gettext_noop(
        "off; report: says what would be refused; enforce: every request is signed and allowed, or refused."
    ),
    "initAuthenticationUser": gettext_noop("The first Super user of access control, made if there is none."),
    "userSendBytesPerSecond": gettext_noop(
        "Bytes that each wire user may send in a second, unless it has a quota of its own; 0: no limit."
    ),
    "userPullBytesPerSecond": gettext_noop(
        "Bytes that each wire user may pull in a second, unless it has a quota of its own; 0: no limit."
    ),
    "userRequestsPerSecond": gettext_noop(
        "Requests of each wire user in a second, unless it has a quota of its own; 0: no limit."
    ),
    "userConnections": gettext_noop("Connections of each wire user, unless it has a quota of its own; 0: no limit."),
    "namesrvAnonymousRoutes": gettext_noop("The name server tells routes to unsigned requests, too."),
    "namesrvBrokerAddresses": gettext_noop("Networks from which other brokers may register without a signature."),
    "tlsMode": gettext_noop(
        "disabled; permissive: clients may use TLS on every port; enforcing: connections without TLS are closed."
    ),
    "tlsCertFile": gettext_noop("PEM file with the certificate for TLS, and those between it and its authority."),
    "proxyProtocolFrom": gettext_noop(
        "Addresses and networks of balancers, separated by ;. Their connections begin with a PROXY header."
    ),
    "tlsKeyFile": gettext_noop("PEM file with the private key of that certificate, without a password."),
    "flushDiskType": gettext_noop(
        "SYNC_FLUSH: a message is acknowledged when it is on disk; ASYNC_FLUSH: when it is written, and a power cut "
        "loses the last half second."
    ),
    "mappedFileSizeCommitLog": gettext_noop(
        "Size of a file of the message log, in bytes; messages are deleted by whole files."
    ),
    "mappedFileSizeConsumeQueue": gettext_noop("Size of a file of a queue's index, in bytes; 20 for a message."),
    "maxMessageSize": gettext_noop("Longest body of a message, in bytes."),
    "syncFlushTimeout": gettext_noop("Longest wait for the disk before a send is answered with a time-out, in ms."),
    "maxTransferBytesOnMessageInMemory": gettext_noop("Most bytes of one pull's answer, of recent messages."),
    "maxTransferCountOnMessageInMemory": gettext_noop("Most messages of one pull's answer, of recent ones."),
    "maxTransferBytesOnMessageInDisk": gettext_noop("Most bytes of one pull's answer, of old messages."),
    "maxTransferCountOnMessageInDisk": gettext_noop("Most messages of one pull's answer, of old ones."),
    "maxFilterMessageSize": gettext_noop(
        "Most bytes of a queue's index that one filtered pull looks at; 20 for a message."
    ),
    "accessMessageInMemoryMaxRatio": gettext_noop(
        "Share of memory, in percent, within which messages count as recent."
    ),
    "diskMaxUsedSpaceRatio": gettext_noop(
        "From this use of the disk on, in percent, expired messages are deleted at any hour."
    ),
    "messageIndexEnable": gettext_noop("Messages can be found by key and id."),
    "maxHashSlotNum": gettext_noop("Slots of a file of the key index."),
    "maxIndexNum": gettext_noop("Keys that a file of the key index takes."),
    "maxMsgsNumBatch": gettext_noop("Most messages that a search by key answers."),
    "messageDelayLevel": gettext_noop("The delay levels, level 1 first; retries climb them from level 3 on."),
    "timerWheelEnable": gettext_noop("Messages may wait for a time of their own."),
    "timerMaxDelaySec": gettext_noop("How far ahead the time of a message may lie, in seconds."),
    "mappedFileSizeTimerLog": gettext_noop("Size of the timers' file that is left for an Apache broker, in bytes."),
    "timerPrecisionMs": gettext_noop("Precision of the times that an Apache broker wrote into this store, in ms."),
    "deleteWhen": gettext_noop("Hours of the day at which expired messages are deleted, as 04 or 04;16."),
    "fileReservedTime": gettext_noop("For how many hours messages are kept."),
    "cleanResourceInterval": gettext_noop("Time between two looks for something to delete, in ms."),
    "deleteFileBatchMax": gettext_noop("Most files of the log that go in one round."),
    "deleteCommitLogFilesInterval": gettext_noop("Pause between two files of the log that are deleted, in ms."),
    "deleteConsumeQueueFilesInterval": gettext_noop("Pause between two files of queues that are deleted, in ms."),
    "redeleteHangedFileInterval": gettext_noop("Pause before a file that could not be deleted is tried again, in ms."),
    "diskSpaceCleanForciblyRatio": gettext_noop(
        "From this use of the disk on, in percent, messages are deleted whatever their age; 100: never."
    ),
    "diskSpaceWarningLevelRatio": gettext_noop(
        "From this use of the disk on, in percent, sends are refused; 100: never."
    ),
    "cleanFileForciblyEnable": gettext_noop("Messages may be deleted before their time where the disk is full."),
    "brokerRole": gettext_noop(
        "SYNC_MASTER waits for slaves before it acknowledges, ASYNC_MASTER does not, SLAVE copies a master."
    ),
    "haListenPort": gettext_noop(
        "Port on which a master listens for slaves; 0: none, or the broker's port + 1 as SYNC_MASTER."
    ),
    "haSlaveAddresses": gettext_noop(
        "Networks from which slaves may copy, besides this machine; all: any. With haSecretFile: without its proof."
    ),
    "haMasterAddress": gettext_noop(
        "The master that a slave copies, host:port; empty: the one that the name servers name."
    ),
    "haSendHeartbeatInterval": gettext_noop("Time between two signs of life to a silent slave or master, in ms."),
    "haHousekeepingInterval": gettext_noop(
        "Silence after which a connection between master and slave is closed, in ms."
    ),
    "haTransferBatchSize": gettext_noop("Most bytes that a slave is sent at once."),
    "haFlowControlEnable": gettext_noop("Copying is held to maxHaTransferByteInSecond."),
    "maxHaTransferByteInSecond": gettext_noop("Most bytes a second that slaves are sent together."),
    "inSyncReplicas": gettext_noop("Copies that a SYNC_MASTER waits for, its own included."),
    "slaveTimeout": gettext_noop("Longest wait for slaves before a send is answered with a time-out, in ms."),
    "haSlaveFallbehindMax": gettext_noop("A slave that is further behind, in bytes, does not count as in sync."),
    "syncFromLastFile": gettext_noop("An empty slave gets only the last file of the log."),
    "tlsClientAuth": gettext_noop(
        "Certificates of clients: none are asked for, optional, or required. With access control one stands for a user."
    ),
    "tlsClientCaFile": gettext_noop("Certificates of the authorities that clients' certificates are checked with."),
    "tlsClientCrlFile": gettext_noop("Lists of the clients' certificates that these authorities have revoked."),
    "tlsConfigFile": gettext_noop("Apache's tls.properties; the options here count first."),
    "accessKeyFile": gettext_noop("A file with the keys that seal the secrets of users on the disk."),
    "authGiveSecrets": gettext_noop("Super users get the secrets of users over TLS or on this machine."),
    "schemaRegistry": gettext_noop("The address of the schema registry that bodies name their schemas in."),
    "schemaRegistrySecretFile": gettext_noop("A file with user:password for the schema registry."),
    "haSecretFile": gettext_noop(
        "A file with the secret that master and slaves, or the members of a set, share; needed with accessControl."
    ),
    "haStore": gettext_noop("The store for leadership of a set that fails over: etcd or ZooKeeper."),
    "haStorePrefix": gettext_noop("Where in that store the sets are."),
    "haStoreUser": gettext_noop("The user at that store."),
    "haStorePasswordFile": gettext_noop("A file with that user's password in its first line."),
    "haStoreCa": gettext_noop("Certificates that the store's is checked with; empty: the system's."),
    "haStoreCertificate": gettext_noop("This member's own certificate, where the store asks for one."),
    "haStoreKey": gettext_noop("The key of that certificate."),
    "haStoreTimeout": gettext_noop("Longest wait for the store, in ms."),
    "haCompactStore": gettext_noop("etcd's history is compacted every hour."),
    "haSet": gettext_noop("The set's name; empty: the broker's."),
    "haElectAfter": gettext_noop(
        "Silence of a leader after which another one is elected, in ms; 0: 2000 for a SYNC_MASTER, else 5000."
    ),
    "haBeatInterval": gettext_noop("Time between two signs of life of a leader, in ms."),
    "haMaxTimeSlaveNotCatchup": gettext_noop(
        "A member that has not caught up for so long, in ms, no longer counts as in sync."
    ),
    "haMaxAckDelay": gettext_noop(
        "A member whose acknowledgements take longer, in ms, leaves those in sync; 0: never."
    ),
    "minInSyncReplicas": gettext_noop("Copies without which nothing is acknowledged."),
    "haMaxLagOnFailover": gettext_noop("With an ASYNC_MASTER: bytes that its next leader may lack."),
    "haDiskStall": gettext_noop("A leader whose disk hangs for so long, in ms, stops leading."),
    "haOnPromote": gettext_noop("A program that is started when this member begins to lead."),
    "haRelayTime": gettext_noop("For how long the old leader passes on sends after a planned switch, in ms."),
    "maxDeliveryEventBytes": gettext_noop(
        "Room for the records of what was delivered to whom, in bytes; 0: none, and pages cannot say it."
    ),
    "kvConfigPath": gettext_noop("File of the name server's key-values."),
    "orderMessageEnable": gettext_noop("The name server tells clients the order configuration of topics."),
    "scanNotActiveBrokerInterval": gettext_noop("Time between two looks for brokers that are silent, in ms."),
    "returnOrderTopicConfigToBroker": gettext_noop("Brokers that register are told the order configuration of topics."),
    "deleteTopicWithBrokerRegistration": gettext_noop(
        "A topic that a broker no longer names when it registers is taken out of its routes."
    ),
    "enableTopicList": gettext_noop("The name server lists topics by cluster."),
    "enableAllTopicList": gettext_noop("The name server lists all topics."),
    "supportActingMaster": gettext_noop("A slave stands in the routes for a master that is gone."),
}


def option_text(name: str) -> str:
    """Return what an option does, in the reader's language; "" for one without an effect."""
    return gettext(OPTION_TEXTS[name]) if name in OPTION_TEXTS else ""
