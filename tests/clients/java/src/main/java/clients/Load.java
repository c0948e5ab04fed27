package clients;

import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Producers that send without end and write down every acknowledgement (RecordFile) as it arrives; or, with "history" in
 * place of "file", every send and how it ended, as tests/rig/history.py has it, of messages that begin with their id.
 */
final class Load {
    private static final Map<String, Load> LOADS = new ConcurrentHashMap<>();
    private static final Gson GSON = new Gson();

    private final DefaultMQProducer producer;
    private final String topic;
    private final RecordFile acknowledged;
    private final boolean history;
    private final String group;
    private final List<Thread> threads = new ArrayList<>();
    private final Map<String, Integer> failures = new TreeMap<>();
    private volatile boolean running = true;
    private long count; // acknowledged messages; guarded by this

    private Load(DefaultMQProducer producer, Args args) throws Exception {
        this.producer = producer;
        topic = args.text("topic");
        history = args.has("history");
        group = args.text("group");
        acknowledged = new RecordFile(args.text(history ? "history" : "file"));
    }

    static void register(Map<String, Agent.Command> commands) {
        commands.put("load.start", Load::start);
        commands.put("load.progress", args -> LOADS.get(args.text("name")).progress(args));
        commands.put("load.stop", args -> LOADS.remove(args.text("name")).stop());
    }

    private static Object start(Args args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.text("group"));
        Producers.configure(producer, args);
        producer.start();
        Load load = new Load(producer, args);
        LOADS.put(args.text("name"), load);
        int count = (int) args.number("threads", 4);
        for (int i = 0; i < count; i++) {
            Random random = new Random(args.number("seed", 0) * 1000 + i);
            boolean batches = i == 0 && !load.history;
            String name = load.group + "t" + i;
            Thread thread = new Thread(() -> load.run(random, batches, name), "load-" + i);
            thread.setDaemon(true);
            load.threads.add(thread);
            thread.start();
        }
        return null;
    }

    private void run(Random random, boolean batches, String name) {
        for (int number = 1; running; number++) {
            try {
                if (history) {
                    sendNoted(random, name, name + "-" + number);
                } else if (batches) {
                    sendBatch(random);
                } else {
                    sendOne(random);
                }
            } catch (Throwable problem) {
                failed(problem.getClass().getSimpleName());
                pause();
            }
        }
    }

    private void sendOne(Random random) throws Exception {
        byte[] body = body(random);
        String hash = Messages.sha256(body);
        SendResult result = producer.send(new Message(topic, body));
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(result.getSendStatus().name());
            return;
        }
        acknowledged.add(
                result.getMessageQueue().getBrokerName(),
                result.getMessageQueue().getQueueId(),
                result.getQueueOffset(),
                result.getMsgId(),
                hash);
        succeeded(1);
    }

    private void sendNoted(Random random, String name, String id) throws Exception {
        byte[] body = (id + "|" + "x".repeat(random.nextInt(900))).getBytes(StandardCharsets.US_ASCII);
        double call = System.currentTimeMillis() / 1000.0;
        SendResult result = null;
        try {
            result = producer.send(new Message(topic, body));
        } finally {
            boolean ok = result != null && result.getSendStatus() == SendStatus.SEND_OK;
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("type", "send");
            line.put("producer", name);
            line.put("topic", topic);
            line.put("id", id);
            line.put("queue", ok ? result.getMessageQueue().getQueueId() : -1);
            line.put("call", call);
            line.put("back", System.currentTimeMillis() / 1000.0);
            line.put("outcome", ok ? "ok" : "unknown");
            line.put("offset", ok ? result.getQueueOffset() : -1);
            line.put("again", producer.getRetryTimesWhenSendFailed() > 0);
            acknowledged.line(GSON.toJson(line));
        }
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            succeeded(1);
        } else {
            failed(result.getSendStatus().name());
        }
        Thread.sleep(2); // there are others
    }

    private void sendBatch(Random random) throws Exception {
        List<Message> messages = new ArrayList<>();
        List<String> hashes = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            byte[] body = body(random);
            hashes.add(Messages.sha256(body));
            messages.add(new Message(topic, body));
        }
        SendResult result = producer.send(messages);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            failed(result.getSendStatus().name());
            return;
        }
        for (int i = 0; i < hashes.size(); i++) {
            // The answer names the first offset; the members follow it. Their ids differ between client versions.
            acknowledged.add(
                    result.getMessageQueue().getBrokerName(),
                    result.getMessageQueue().getQueueId(),
                    result.getQueueOffset() + i,
                    "-",
                    hashes.get(i));
        }
        succeeded(hashes.size());
    }

    /** 10 to 1,500 random bytes; one in twenty 6,000 bytes of text, which the client compresses. */
    private static byte[] body(Random random) {
        if (random.nextInt(20) == 0) {
            return (random.nextLong() + " ").repeat(600).substring(0, 6000).getBytes(StandardCharsets.US_ASCII);
        }
        byte[] body = new byte[10 + random.nextInt(1490)];
        random.nextBytes(body);
        return body;
    }

    private static void pause() {
        try {
            Thread.sleep(20); // a refused connection fails at once
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void succeeded(int messages) {
        count += messages;
        notifyAll();
    }

    private synchronized void failed(String why) {
        failures.merge(why, 1, Integer::sum);
    }

    /** Wait until "more" messages are acknowledged than now (or than "than"); answers the count. */
    private synchronized Object progress(Args args) throws Exception {
        long wanted = args.number("than", count) + args.number("more", 0);
        long deadline = System.nanoTime() + args.number("timeout_ms", 10_000) * 1_000_000L;
        while (count < wanted) {
            long left = (deadline - System.nanoTime()) / 1_000_000L;
            if (left <= 0) {
                throw new TimeoutException(count + " acknowledged, " + wanted + " awaited; failures " + failures);
            }
            wait(left);
        }
        return count;
    }

    private Object stop() throws Exception {
        running = false;
        for (Thread thread : threads) {
            thread.join(15_000);
            if (thread.isAlive()) {
                throw new TimeoutException(thread.getName() + " did not end in 15 s");
            }
        }
        producer.shutdown();
        acknowledged.close();
        Map<String, Object> json = new LinkedHashMap<>();
        synchronized (this) {
            json.put("acknowledged", count);
            json.put("failures", failures);
        }
        return json;
    }
}
