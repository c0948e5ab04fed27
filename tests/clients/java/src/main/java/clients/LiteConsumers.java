package clients;

import com.google.gson.JsonElement;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer, subscribing or assigned. */
final class LiteConsumers {
    private static final Map<String, DefaultLitePullConsumer> CONSUMERS = new ConcurrentHashMap<>();

    private LiteConsumers() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("lite.start", LiteConsumers::start);
        commands.put("lite.stop", LiteConsumers::stop);
        commands.put("lite.queues", args -> Messages.queues(consumer(args).fetchMessageQueues(args.text("topic"))));
        commands.put("lite.assign", LiteConsumers::assign);
        commands.put("lite.assignment", args -> Messages.queues(consumer(args).assignment()));
        commands.put("lite.poll", args -> Messages.received(consumer(args).poll(args.number("timeout_ms"))));
        commands.put("lite.seek", LiteConsumers::seek);
        commands.put("lite.pause", LiteConsumers::pause);
        commands.put("lite.resume", LiteConsumers::resume);
        commands.put("lite.commit", LiteConsumers::commit);
        commands.put("lite.committed", args -> consumer(args).committed(queue(args)));
        commands.put("lite.offset_for_timestamp", args -> consumer(args)
                .offsetForTimestamp(queue(args), args.number("timestamp_ms")));
    }

    private static DefaultLitePullConsumer consumer(Args args) {
        return CONSUMERS.get(args.text("name"));
    }

    private static MessageQueue queue(Args args) {
        return Messages.queue(args.object("queue"));
    }

    private static List<MessageQueue> queues(Args args) {
        List<MessageQueue> queues = new ArrayList<>();
        for (JsonElement element : args.list("queues")) {
            queues.add(Messages.queue(element.getAsJsonObject()));
        }
        return queues;
    }

    /** Subscribes when "topic" is given; without it the queues come by lite.assign. */
    private static Object start(Args args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.text("group"));
        args.connect(consumer);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (args.has("topic")) {
            consumer.subscribe(args.text("topic"), args.text("expression", "*"));
        }
        CONSUMERS.put(args.text("name"), consumer);
        consumer.start();
        return null;
    }

    private static Object stop(Args args) {
        CONSUMERS.remove(args.text("name")).shutdown();
        return null;
    }

    private static Object assign(Args args) {
        consumer(args).assign(queues(args));
        return null;
    }

    private static Object seek(Args args) throws Exception {
        String to = args.text("to", "offset");
        if (to.equals("begin")) {
            consumer(args).seekToBegin(queue(args));
        } else if (to.equals("end")) {
            consumer(args).seekToEnd(queue(args));
        } else {
            consumer(args).seek(queue(args), args.number("offset"));
        }
        return null;
    }

    private static Object pause(Args args) {
        consumer(args).pause(queues(args));
        return null;
    }

    private static Object resume(Args args) {
        consumer(args).resume(queues(args));
        return null;
    }

    private static Object commit(Args args) throws Exception {
        consumer(args).commit(consumer(args).assignment(), true);
        return null;
    }
}
