package clients;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests of producers, and consumers that reply "reply to ..." to each; each reply's fate is a "replied" event. */
final class RequestReply {
    private static final Map<String, DefaultMQPushConsumer> REPLIERS = new ConcurrentHashMap<>();

    private RequestReply() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("request.ask", RequestReply::ask);
        commands.put("reply.start", RequestReply::start);
        commands.put("reply.stop", args -> {
            REPLIERS.remove(args.text("name")).shutdown();
            return null;
        });
    }

    /** Producer "name" asks "body" of "topic"; "how": sync or async. The reply's body and properties. */
    private static Object ask(Args args) throws Exception {
        DefaultMQProducer producer = Producers.producer(args);
        Message question = new Message(args.text("topic"), args.text("body").getBytes(StandardCharsets.UTF_8));
        long timeout = args.number("timeout_ms", 10_000);
        if (args.text("how", "sync").equals("sync")) {
            return told(producer.request(question, timeout));
        }
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer.request(
                question,
                new RequestCallback() {
                    @Override
                    public void onSuccess(Message reply) {
                        if (reply != null) { // both versions call it with null, too, when the request was sent
                            answer.complete(reply);
                        }
                    }

                    @Override
                    public void onException(Throwable problem) {
                        answer.completeExceptionally(problem);
                    }
                },
                timeout);
        return told(answer.get(timeout + 10_000, TimeUnit.MILLISECONDS));
    }

    private static Object told(Message reply) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        json.put("properties", new TreeMap<>(reply.getProperties()));
        return json;
    }

    /** A consumer of "topic" in "group" that replies by the started producer "producer", "after_ms" later. */
    private static Object start(Args args) throws Exception {
        String name = args.text("name");
        DefaultMQProducer producer = Producers.named(args.text("producer"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.text("group"));
        args.connect(consumer);
        consumer.setInstanceName(name);
        consumer.setHeartbeatBrokerInterval(1000); // see PushConsumers
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                reply(name, producer, message, args.number("after_ms", 0));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.subscribe(args.text("topic"), "*");
        REPLIERS.put(name, consumer);
        consumer.start();
        return null;
    }

    private static void reply(String name, DefaultMQProducer producer, MessageExt message, long afterMs) {
        Map<String, Object> event = new LinkedHashMap<>();
        String question = new String(message.getBody(), StandardCharsets.UTF_8);
        event.put("question", question);
        try {
            Agent.event("asked", name, Map.of("question", question));
            Thread.sleep(afterMs);
            byte[] body = ("reply to " + question).getBytes(StandardCharsets.UTF_8);
            event.put("result", Messages.sent(producer.send(MessageUtil.createReplyMessage(message, body))));
        } catch (Exception problem) {
            event.put("error", Agent.describe(problem));
        }
        Agent.event("replied", name, event);
    }
}
