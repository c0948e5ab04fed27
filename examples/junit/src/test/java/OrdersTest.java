import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import rocketbox.RocketBoxExtension;

class OrdersTest {
    @RegisterExtension static RocketBoxExtension box = new RocketBoxExtension();

    @Test
    void aPaidOrderIsBilled() throws Exception {
        BlockingQueue<String> billed = new LinkedBlockingQueue<>();
        DefaultMQProducer producer = new DefaultMQProducer("orders");
        producer.setNamesrvAddr(box.nameServer());
        producer.setMqClientApiTimeout(30_000);  // of which a first connection takes its part
        producer.start();
        producer.send(new Message("orders", "paid", "17".getBytes(StandardCharsets.UTF_8)), 10_000);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("billing");
        consumer.setNamesrvAddr(box.nameServer());
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "paid");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> billed.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        assertThrows(AssertionError.class, () -> box.awaitIdle("billing", "orders", Duration.ZERO));
        consumer.start();
        box.awaitIdle("billing", "orders", Duration.ofSeconds(60));
        assertEquals("17", billed.poll());
        consumer.shutdown();
        producer.shutdown();
    }
}
