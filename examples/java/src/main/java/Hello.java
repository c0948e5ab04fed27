import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends one message and waits until a consumer has it. The first argument is the name server, 127.0.0.1:9876. */
public class Hello {
    public static void main(String[] arguments) {
        boolean done = false;
        try {
            done = sendAndReceive(arguments.length > 0 ? arguments[0] : "127.0.0.1:9876");
        } catch (Exception error) {
            System.err.println(error.getMessage());
        }
        System.exit(done ? 0 : 1);  // after a failure, too, the clients' threads would go on for ever
    }

    static boolean sendAndReceive(String nameServer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("hello-java-producer");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(10_000);  // of which the first connection takes its part
        producer.start();
        byte[] body = "Hello from Java".getBytes(StandardCharsets.UTF_8);
        System.out.println("sent      " + producer.send(new Message("HelloJava", body)).getMsgId());

        CountDownLatch received = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("hello-java-consumer");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("HelloJava", "*");
        // A message counts as consumed when its listener has returned: without this, shutdown() does not wait for that.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println(
                "received  " + message.getMsgId() + "  " + new String(message.getBody(), StandardCharsets.UTF_8)));
            received.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();

        boolean done = received.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        if (!done) {
            System.err.println("no message came back within 30 s");
        }
        return done;
    }
}
