package clients;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers by name, and every way they send. */
final class Producers {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();

    private Producers() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("producer.start", Producers::start);
        commands.put("producer.stop", Producers::stop);
        commands.put("producer.send", Producers::send);
        commands.put("producer.many", Producers::sendMany);
        commands.put("producer.queues", args -> Messages.queues(
                producer(args).fetchPublishMessageQueues(args.text("topic"))));
    }

    static DefaultMQProducer producer(Args args) {
        return named(args.text("name"));
    }

    static DefaultMQProducer named(String name) {
        DefaultMQProducer producer = PRODUCERS.get(name);
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + name);
        }
        return producer;
    }

    private static Object start(Args args) throws Exception {
        DefaultMQProducer producer = made(args);
        configure(producer, args);
        producer.start();
        PRODUCERS.put(args.text("name"), producer);
        return null;
    }

    /** "compress": how 5.x packs large bodies, LZ4, ZSTD or ZLIB; it is read when a producer is made. */
    private static synchronized DefaultMQProducer made(Args args) {
        System.setProperty("rocketmq.message.compressType", args.text("compress", "ZLIB"));
        return args.flag("transactional")
                ? Transactions.producer(args)
                : new DefaultMQProducer(args.text("group"), Credentials.hook(args), args.flag("trace"), null);
    }

    static void configure(DefaultMQProducer producer, Args args) {
        args.connect(producer);
        if (args.has("namespace")) {
            producer.setNamespace(args.text("namespace"));
        }
        if (args.has("instance")) {
            producer.setInstanceName(args.text("instance"));
        }
        producer.setSendMsgTimeout((int) args.number("timeout_ms", 30_000));
        producer.setRetryTimesWhenSendFailed((int) args.number("retries", 2));
        producer.setRetryTimesWhenSendAsyncFailed((int) args.number("retries", 2));
        producer.setVipChannelEnabled(args.flag("vip"));
        if (args.has("poll_ms")) {
            producer.setPollNameServerInterval((int) args.number("poll_ms"));
        }
    }

    private static Object stop(Args args) {
        DefaultMQProducer producer = producer(args);
        producer.shutdown();
        PRODUCERS.remove(args.text("name"));
        return null;
    }

    /** Send "messages" to "topic" in the order given; "how" is sync, async, oneway, batch, ordered, queue, transaction. */
    private static Object send(Args args) throws Exception {
        DefaultMQProducer producer = producer(args);
        String topic = args.text("topic");
        learnQueues(producer, topic);
        List<JsonObject> wanted = new ArrayList<>();
        List<Message> messages = new ArrayList<>();
        for (JsonElement element : args.list("messages")) {
            wanted.add(element.getAsJsonObject());
            messages.add(Messages.message(topic, element.getAsJsonObject()));
        }
        List<Object> results = new ArrayList<>();
        switch (args.text("how", "sync")) {
            case "async":
                return sendAsync(producer, messages);
            case "batch":
                return Map.of("results", List.of(Messages.sent(producer.send(messages))));
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                return Map.of("results", results);
            case "ordered":
                for (int i = 0; i < messages.size(); i++) {
                    String order = wanted.get(i).get("order").getAsString();
                    results.add(Messages.sent(producer.send(messages.get(i), new SelectMessageQueueByHash(), order)));
                }
                return Map.of("results", results);
            case "queue":
                MessageQueue queue = Messages.queue(args.object("queue"));
                for (Message message : messages) {
                    results.add(Messages.sent(producer.send(message, queue)));
                }
                return Map.of("results", results);
            case "transaction":
                for (Message message : messages) {
                    results.add(Messages.sent(
                            ((TransactionMQProducer) producer).sendMessageInTransaction(message, null)));
                }
                return Map.of("results", results);
            case "sync":
                for (Message message : messages) {
                    results.add(Messages.sent(producer.send(message)));
                }
                return Map.of("results", results);
            default:
                throw new IllegalArgumentException("how? " + args.text("how"));
        }
    }

    /** Sends "count" messages of "bytes" zeros, for bench/clients.py; "how" is sync, or async with 256 on their way. */
    private static Object sendMany(Args args) throws Exception {
        DefaultMQProducer producer = producer(args);
        boolean waits = args.text("how").equals("sync");
        int window = 256;
        java.util.concurrent.Semaphore open = new java.util.concurrent.Semaphore(window);
        java.util.concurrent.atomic.AtomicReference<Throwable> failure = new java.util.concurrent.atomic.AtomicReference<>();
        SendCallback done = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                open.release();
            }

            @Override
            public void onException(Throwable problem) {
                failure.set(problem);
                open.release();
            }
        };
        for (long i = args.number("count"); i > 0; i--) {
            Message message = new Message(args.text("topic"), new byte[(int) args.number("bytes")]);
            if (waits) {
                producer.send(message);
            } else {
                open.acquire();
                producer.send(message, done);
            }
        }
        open.acquire(window);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return null;
    }

    /** Has the producer know the queues of a topic that exists. By itself it looks for 3 s while another thread of the
     * client is looking, and then takes the topic for a new one with four queues. */
    private static void learnQueues(DefaultMQProducer producer, String topic) {
        String whole = producer.withNamespace(topic);
        MQClientInstance client = MQClientManager.getInstance().getOrCreateMQClientInstance(producer);
        for (int tries = 0; tries < 10 && !client.getTopicRouteTable().containsKey(whole); tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
            } catch (MQClientException absent) {
                return;
            }
            client.updateTopicRouteInfoFromNameServer(whole);
        }
    }

    /** All at once; results in the order of the messages, a failed one as {"error": ...}. */
    private static Object sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(messages.size());
        for (int i = 0; i < messages.size(); i++) {
            int index = i;
            producer.send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[index] = Messages.sent(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    Map<String, Object> failed = new LinkedHashMap<>();
                    failed.put("error", Agent.describe(problem));
                    results[index] = failed;
                    open.countDown();
                }
            });
        }
        if (!open.await(60, TimeUnit.SECONDS)) {
            throw new TimeoutException(open.getCount() + " of " + results.length + " callbacks are missing after 60 s");
        }
        return Map.of("results", List.of(results));
    }
}
