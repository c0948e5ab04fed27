package clients;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPullConsumer: queues, explicit pulls, offsets of the log and of the group. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private static final Map<String, DefaultMQPullConsumer> CONSUMERS = new ConcurrentHashMap<>();

    private PullConsumers() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("pull.start", PullConsumers::start);
        commands.put("pull.stop", PullConsumers::stop);
        commands.put("pull.queues", args -> Messages.queues(consumer(args).fetchSubscribeMessageQueues(args.text("topic"))));
        commands.put("pull.pull", PullConsumers::pull);
        commands.put("pull.offsets", PullConsumers::offsets);
        commands.put("pull.search", args -> consumer(args).searchOffset(queue(args), args.number("timestamp_ms")));
        commands.put("pull.commit", PullConsumers::commit);
        commands.put("pull.committed", args -> consumer(args).fetchConsumeOffset(queue(args), true));
        commands.put("pull.dump", PullConsumers::dump);
    }

    private static DefaultMQPullConsumer consumer(Args args) {
        return CONSUMERS.get(args.text("name"));
    }

    private static MessageQueue queue(Args args) {
        return Messages.queue(args.object("queue"));
    }

    private static Object start(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.text("group"));
        args.connect(consumer);
        CONSUMERS.put(args.text("name"), consumer);
        consumer.start();
        return null;
    }

    private static Object stop(Args args) {
        CONSUMERS.remove(args.text("name")).shutdown();
        return null;
    }

    /** "how": sync, async, or block (long polling). */
    private static Object pull(Args args) throws Exception {
        DefaultMQPullConsumer consumer = consumer(args);
        String expression = args.text("expression", "*");
        long offset = args.number("offset");
        int max = (int) args.number("max", 32);
        switch (args.text("how", "sync")) {
            case "async":
                CompletableFuture<PullResult> future = new CompletableFuture<>();
                consumer.pull(queue(args), expression, offset, max, new PullCallback() {
                    @Override
                    public void onSuccess(PullResult result) {
                        future.complete(result);
                    }

                    @Override
                    public void onException(Throwable problem) {
                        future.completeExceptionally(problem);
                    }
                });
                return pulled(future.get(15, TimeUnit.SECONDS));
            case "block":
                return pulled(consumer.pullBlockIfNotFound(queue(args), expression, offset, max));
            default:
                return pulled(consumer.pull(queue(args), expression, offset, max));
        }
    }

    private static Map<String, Object> pulled(PullResult result) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("status", result.getPullStatus().name());
        json.put("next", result.getNextBeginOffset());
        json.put("min", result.getMinOffset());
        json.put("max", result.getMaxOffset());
        json.put(
                "messages",
                result.getMsgFoundList() == null ? List.of() : Messages.received(result.getMsgFoundList()));
        return json;
    }

    private static Object offsets(Args args) throws Exception {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("min", consumer(args).minOffset(queue(args)));
        json.put("max", consumer(args).maxOffset(queue(args)));
        json.put("earliest_ms", consumer(args).earliestMsgStoreTime(queue(args)));
        return json;
    }

    private static Object commit(Args args) throws Exception {
        consumer(args).updateConsumeOffset(queue(args), args.number("offset"));
        consumer(args).persist(queue(args));
        return null;
    }

    /** Read every queue of "topic" from its minimum to its maximum into record lines; answers the bounds found. */
    private static Object dump(Args args) throws Exception {
        DefaultMQPullConsumer consumer = consumer(args);
        RecordFile file = new RecordFile(args.text("file"));
        List<Object> bounds = new java.util.ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(args.text("topic"))) {
            long min = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            long next = min;
            while (next < max) {
                PullResult result = consumer.pull(queue, "*", next, 500);
                if (result.getMsgFoundList() == null || result.getNextBeginOffset() <= next) {
                    throw new IllegalStateException("no progress at " + queue + " offset " + next + ": " + result);
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    file.add(message);
                }
                next = result.getNextBeginOffset();
            }
            Map<String, Object> bound = Messages.queue(queue);
            bound.put("min", min);
            bound.put("max", max);
            bounds.add(bound);
        }
        file.close();
        return bounds;
    }
}
