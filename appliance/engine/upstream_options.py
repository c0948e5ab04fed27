"""Options of Apache's broker and name server that have no effect here, and values that are refused.

A configuration file written for Apache must load as it is. So these names are accepted, and the start logs which of
them have no effect. They are the names that the servers of 4.9.8 and 5.3.3 list themselves (requests 26 and 319), those
that are not listed because their default is null, and those that older documents use.
"""

from __future__ import annotations

BROKER = frozenset(
    """
    abortFile accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
    ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable
    adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet
    appendAckAsync appendCkAsync asyncLearner asyncSendEnable authConfigPath
    authenticationEnabled authenticationMetadataProvider authenticationProvider authenticationStrategy
    authenticationWhitelist authorizationEnabled authorizationMetadataProvider authorizationProvider
    authorizationStrategy authorizationWhitelist autoDeleteUnusedStats autoMessageVersionOnTopicLen
    batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
    broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerConfigPath brokerElectionPriority
    brokerFastFailureEnable brokerHeartbeatInterval brokerNotActiveTimeoutMillis
    cgColdReadThreshold channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod
    checkTransactionMessageEnable cleanOfflineBrokerInterval
    cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
    coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable commercialBaseCount commercialBigCount
    commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval commitLogSwapMapInterval
    commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
    compactionThreadNum compatibleWithOldNameSrv compressedRegister configBlackList configManagerVersion
    connectTimeoutMillis consumerFallbehindThreshold consumerManageThreadPoolNums
    consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr
    controllerHeartBeatTimeoutMills controllerType correctLogicMinOffsetForceInterval
    correctLogicMinOffsetSleepInterval dLegerGroup dLegerPeers dLegerSelfId dataReadAheadEnable debugLockEnable
    defaultMessageRequestMode defaultPopShareQueueNum delayOffsetUpdateVersionStep
    destroyMapedFileIntervalForcibly
    disableCallbackExecutor disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart
    diskFallRecorded dispatchCqCacheNum dispatchCqThreads
    dispatchFromSenderThread duplicationEnable enableAsyncReput enableAutoInSyncReplicas enableBatchPush
    enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently enableCleanExpiredOffset
    enableCompaction enableConsumeQueueExt enableControllerMode enableCreateSysGroup enableDLegerCommitLog
    enableDetailStat enableFastChannelEventProcess enableLmq enableLmqStats enableMixedMessageType
    enableMultiDispatch enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
    enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
    enableReconnectForGoAway enableRegisterProducer enableRemoteEscape enableRetryTopicV2 enableRocksDBLog
    enableScheduleAsyncDeliver enableScheduleMessageStats enableShutdownGracefully enableSingleTopicRegister
    enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitRegistration enabledAppendPropCRC
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval filterServerNums
    flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
    flushDelayOffsetInterval flushIntervalCommitLog flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile
    forceRegister forceVerifyPropCRC forwardTimeout globalColdReadThreshold
    haMaxGapNotInSync
    heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode
    initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials isBrokerContainer isEnableBatchPush
    isInBrokerContainer isScanAvailableNameSrv isolateLogEnable litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold mapedFileSizeCommitLog
    mapedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSwapEnable
    mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
    maxConsumeQueueScan maxDelayTime
    maxLmqConsumeQueueNum maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds
    maxRecoveryCommitlogFiles maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength memTableFlushIntervalMs
    messageIndexSafe messageStorePlugIn metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
    metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled namesrvDomain
    namesrvDomainSubgroup offsetCheckInSlave osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize
    popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability popInflightMessageThreshold
    popLongPollingForceNotifyInterval popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
    popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead preferredLeaderId printChannelGroups
    printChannelGroupsMinNum processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums
    pullThreadPoolQueueCapacity putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
    putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange realTimePersistRocksDBConfig
    recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums
    rejectPullConsumerEnable replicasPerDiskPartition replyThreadPoolQueueCapacity
    retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime
    rocketmqHome rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable sendHeartbeatTimeoutMillis
    sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes
    socksProxyConfig spinLockCollisionRetreatOptimalDegree splitRegistrationSize
    statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum storeCheckpoint storePathBrokerIdentity
    storePathCommitLog storePathConsumeQueue storePathDLedgerCommitLog storePathEpochFile storePathIndex
    storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod syncMasterFlushOffsetWhenStartup
    timerCheckMetricsWhen timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
    timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
    timerInterceptDelayLevel timerMetricSmallThreshold timerProgressLogIntervalMs
    timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue
    timerWarmEnable topicQueueLockNum totalReplicas
    transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    transferMsgByHeap transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
    updateNameServerAddrPeriod useABSLock useEpollNativeSelector usePIDColdCtrStrategy
    useReentrantLockWhenPutMessage useStaticSubscription useTLS userCacheExpiredSecond
    userCacheMaxNum userCacheRefreshSecond validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue
    waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
    waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage
    wakeFlushWhenPutMessage warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark
    """.split()
)

NAMESRV = frozenset(
    """
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity configBlackList configStorePath
    defaultThreadPoolNums defaultThreadPoolQueueCapacity enableControllerInNamesrv enableShutdownGracefully
    needWaitForService notifyMinBrokerIdChanged rocketmqHome serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
    serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds unRegisterBrokerQueueCapacity
    useEpollNativeSelector waitSecondsForService writeBufferHighWaterMark writeBufferLowWaterMark
    """.split()
)

_OPEN = "access control is switched on by accessControl here, and has users of its own"

# For these, "no effect" would break a promise, so only values that are true here are accepted: (those values, why).
REFUSED: dict[str, tuple[frozenset[str], str]] = {
    "aclEnable": (frozenset({"false"}), _OPEN),
    "authenticationEnabled": (frozenset({"false"}), _OPEN),
    "authorizationEnabled": (frozenset({"false"}), _OPEN),
    "useTLS": (
        frozenset({"false"}),
        "tlsMode switches TLS on here; with enforcing, a broker registers by TLS, too",
    ),
    "enableDLegerCommitLog": (frozenset({"false"}), "DLedger's log has another format"),
    "enableControllerMode": (frozenset({"false"}), "there is no controller"),
    "enableControllerInNamesrv": (frozenset({"false"}), "there is no controller"),
    "storeType": (frozenset({"default"}), "consume queues in RocksDB have another format"),
}
