package clients;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name; every message, and every new allocation of queues, is an event. */
final class PushConsumers {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, RecordFile> SINKS = new ConcurrentHashMap<>();

    private PushConsumers() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("push.start", PushConsumers::start);
        commands.put("push.stop", PushConsumers::stop);
        commands.put("push.rebalance", PushConsumers::rebalance);
        commands.put("push.subscribe", PushConsumers::subscribe);
    }

    /**
     * "from": CONSUME_FROM_FIRST_OFFSET and so on; "model": CLUSTERING or BROADCASTING; "namespace"; "trace": with
     * message trace; "max_reconsume": maxReconsumeTimes; "suspend_ms": how long an orderly queue rests after a failure;
     * "batch": how many messages a listener is given at most, "ack": the last of them that it says it has done (ackIndex);
     * "sql": an SQL92 expression in place of "expression", which is tags; "poll_ms": how often it looks for new topics;
     * "allocation": average, in_turns or consistent_hash; "sink": a file that takes the messages as record
     * lines (RecordFile) in place of events. What the listener does is in Conduct.
     */
    private static Object start(Args args) throws Exception {
        String name = args.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                args.text("group"),
                Credentials.hook(args),
                new AllocateMessageQueueAveragely(),
                args.flag("trace"),
                null);
        if (args.has("namespace")) {
            consumer.setNamespace(args.text("namespace"));
        }
        if (args.has("max_reconsume")) {
            consumer.setMaxReconsumeTimes((int) args.number("max_reconsume"));
        }
        if (args.has("suspend_ms")) {
            consumer.setSuspendCurrentQueueTimeMillis(args.number("suspend_ms"));
        }
        if (args.has("batch")) {
            consumer.setConsumeMessageBatchMaxSize((int) args.number("batch"));
        }
        if (args.has("poll_ms")) {
            consumer.setPollNameServerInterval((int) args.number("poll_ms"));
        }
        args.connect(consumer);
        // Broadcasting keeps the instance name, and two in one process would share one client id.
        consumer.setInstanceName(args.text("instance", "DEFAULT"));
        consumer.setMessageModel(named(consumer.getMessageModel(), args.text("model", "CLUSTERING")));
        consumer.setConsumeFromWhere(named(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, args.text("from")));
        if (args.has("timestamp")) {
            consumer.setConsumeTimestamp(args.text("timestamp"));
        }
        consumer.setVipChannelEnabled(args.flag("vip"));
        // A rebalance changes the version of the subscription; when the heartbeat that should tell it falls together
        // with another, the client leaves it out, and the broker refuses its pulls (25) until the next: 30 s by default.
        consumer.setHeartbeatBrokerInterval(1000);
        if (!args.has("hold_ms")) {
            // Without it the client interrupts its listener and commits no offset of what that has just returned from.
            consumer.setAwaitTerminationMillisWhenShutdown(20_000);
        }
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setAllocateMessageQueueStrategy(new ReportingStrategy(name, args.text("allocation", "average")));
        if (args.has("sink")) {
            SINKS.put(name, new RecordFile(args.text("sink")));
        }
        Conduct conduct = new Conduct(args);
        if (args.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                report(name, messages);
                return conduct.succeeds(messages)
                        ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                report(name, messages);
                context.setDelayLevelWhenNextConsume(conduct.nextLevel);
                if (args.has("ack")) {
                    context.setAckIndex((int) args.number("ack"));
                }
                return conduct.succeeds(messages)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        subscribe(consumer, args);
        CONSUMERS.put(name, consumer);
        consumer.start();
        return null;
    }

    private static void subscribe(DefaultMQPushConsumer consumer, Args args) throws Exception {
        if (args.has("sql")) {
            consumer.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else {
            consumer.subscribe(args.text("topic"), args.text("expression", "*"));
        }
    }

    /** Another expression while it runs. */
    private static Object subscribe(Args args) throws Exception {
        subscribe(CONSUMERS.get(args.text("name")), args);
        return null;
    }

    /** The constant of `any`'s enum called `name`: the enums moved between packages from 4.9 to 5.x. */
    private static <E extends Enum<E>> E named(E any, String name) {
        return Enum.valueOf(any.getDeclaringClass(), name);
    }

    private static void report(String name, List<MessageExt> messages) {
        RecordFile sink = SINKS.get(name);
        for (MessageExt message : messages) {
            if (sink != null) {
                sink.add(message);
            } else {
                Agent.event("message", name, Map.of("message", Messages.received(message)));
            }
        }
    }

    private static Object stop(Args args) {
        DefaultMQPushConsumer consumer = CONSUMERS.remove(args.text("name"));
        consumer.shutdown();
        RecordFile sink = SINKS.remove(args.text("name"));
        if (sink != null) {
            sink.close();
        }
        return null;
    }

    /** What the 20 s timer would do, now: a 4.9 consumer that was refused a lock asks again only then. */
    private static Object rebalance(Args args) {
        CONSUMERS.get(args.text("name")).getDefaultMQPushConsumerImpl().doRebalance();
        return null;
    }

    private static AllocateMessageQueueStrategy strategy(String rule) {
        switch (rule) {
            case "average":
                return new AllocateMessageQueueAveragely();
            case "in_turns":
                return new AllocateMessageQueueAveragelyByCircle();
            case "consistent_hash":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException("allocation: " + rule);
        }
    }

    /** A strategy that says each new outcome as an "allocated" event. */
    private static final class ReportingStrategy implements AllocateMessageQueueStrategy {
        private final String name;
        private final AllocateMessageQueueStrategy rule;
        private final Map<String, List<MessageQueue>> last = new HashMap<>();

        ReportingStrategy(String name, String rule) {
            this.name = name;
            this.rule = strategy(rule);
        }

        @Override
        public String getName() {
            return rule.getName();
        }

        @Override
        public synchronized List<MessageQueue> allocate(
                String group, String clientId, List<MessageQueue> queues, List<String> clientIds) {
            List<MessageQueue> mine = rule.allocate(group, clientId, queues, clientIds);
            if (!queues.isEmpty() && !mine.equals(last.put(queues.get(0).getTopic(), mine))) {
                Map<String, Object> content = new LinkedHashMap<>();
                content.put("topic", queues.get(0).getTopic());
                content.put("queues", Messages.queues(mine));
                content.put("members", clientIds.size());
                Agent.event("allocated", name, content);
            }
            return mine;
        }
    }
}
