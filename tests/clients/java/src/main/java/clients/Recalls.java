package clients;

import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Messages with a time taken back before it has come; 4.9 has no method for it. */
final class Recalls {
    private Recalls() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("producer.recall", Recalls::recall);
    }

    /** {"name", "topic", "handle"}: the unique key that the broker answers with. */
    private static Object recall(Args args) throws Throwable {
        try {
            Object key = DefaultMQProducer.class
                    .getMethod("recallMessage", String.class, String.class)
                    .invoke(Producers.producer(args), args.text("topic"), args.text("handle"));
            return Map.of("unique_key", String.valueOf(key));
        } catch (InvocationTargetException problem) {
            throw problem.getCause();
        }
    }
}
