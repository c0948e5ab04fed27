package clients;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactional producers. What a message's listener answers stands in the message: its property "local" for the local
 * branch, "check" for the broker's questions, as words that are used up in turn, the last one for ever: commit,
 * rollback, unknown, null, throw, or hang (for as long as the process lives). Without one it commits. Both are events:
 * "executed" and "checked".
 */
final class Transactions {
    private Transactions() {}

    static TransactionMQProducer producer(Args args) {
        TransactionMQProducer producer =
                new TransactionMQProducer(null, args.text("group"), null, args.flag("trace"), null);
        producer.setTransactionListener(new Listener(args.text("name")));
        return producer;
    }

    private static final class Listener implements TransactionListener {
        private final String name;
        private final Map<String, Integer> asked = new ConcurrentHashMap<>();

        Listener(String name) {
            this.name = name;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            Map<String, Object> json = new LinkedHashMap<>();
            json.put("body_sha256", Messages.sha256(message.getBody()));
            json.put("transaction_id", message.getTransactionId());
            json.put("properties", new TreeMap<>(message.getProperties()));
            json.put("at_ms", System.currentTimeMillis());
            Agent.event("executed", name, Map.of("message", json));
            return verdict(message.getUserProperty("local"), 1);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int times = asked.merge(Messages.sha256(message.getBody()), 1, Integer::sum);
            Agent.event("checked", name, Map.of("message", Messages.received(message)));
            return verdict(message.getUserProperty("check"), times);
        }

        private static LocalTransactionState verdict(String words, int times) {
            String[] list = words == null ? new String[] {"commit"} : words.split(" ");
            String word = list[Math.min(times, list.length) - 1];
            switch (word) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "unknown":
                    return LocalTransactionState.UNKNOW;
                case "null":
                    return null;
                case "hang":
                    while (true) {
                        sleep();
                    }
                case "throw":
                    throw new IllegalStateException("as the test wants it");
                default:
                    throw new IllegalArgumentException("a listener does not answer " + word);
            }
        }

        private static void sleep() {
            try {
                Thread.sleep(60_000);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
