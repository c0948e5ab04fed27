package clients;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages and queues, between JSON and the client's classes. */
final class Messages {
    private Messages() {}

    /** {"body": base64, "tags", "keys": [..], "properties": {..}, "flag", "delay", "timer", "transaction"} as a message. */
    static Message message(String topic, JsonObject json) {
        Message message = new Message(topic, Base64.getDecoder().decode(json.get("body").getAsString()));
        if (json.has("tags")) {
            message.setTags(json.get("tags").getAsString());
        }
        if (json.has("keys")) {
            List<String> keys = new ArrayList<>();
            for (JsonElement key : json.getAsJsonArray("keys")) {
                keys.add(key.getAsString());
            }
            message.setKeys(keys);
        }
        if (json.has("properties")) {
            for (Map.Entry<String, JsonElement> entry : json.getAsJsonObject("properties").entrySet()) {
                message.putUserProperty(entry.getKey(), entry.getValue().getAsString());
            }
        }
        if (json.has("flag")) {
            message.setFlag(json.get("flag").getAsInt());
        }
        if (json.has("delay")) {
            message.setDelayTimeLevel(json.get("delay").getAsInt());
        }
        if (json.has("timer")) {
            for (Map.Entry<String, JsonElement> entry : json.getAsJsonObject("timer").entrySet()) {
                setTimer(message, entry.getKey(), entry.getValue().getAsLong());
            }
        }
        return message;
    }

    /** 4.9 has no methods for times: there they are properties like any other. */
    private static void setTimer(Message message, String property, long value) {
        Map<String, String> setters = Map.of(
                "TIMER_DELAY_MS", "setDelayTimeMs",
                "TIMER_DELAY_SEC", "setDelayTimeSec",
                "TIMER_DELIVER_MS", "setDeliverTimeMs");
        try {
            Message.class.getMethod(setters.get(property), long.class).invoke(message, value);
        } catch (NoSuchMethodException old) {
            message.putUserProperty(property, String.valueOf(value));
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("status", result.getSendStatus().name());
        json.put("msg_id", result.getMsgId());
        json.put("offset_msg_id", result.getOffsetMsgId());
        json.put("broker", result.getMessageQueue().getBrokerName());
        json.put("queue_id", result.getMessageQueue().getQueueId());
        json.put("queue_offset", result.getQueueOffset());
        json.put("transaction_id", result.getTransactionId());
        try {
            json.put("recall_handle", SendResult.class.getMethod("getRecallHandle").invoke(result));
        } catch (NoSuchMethodException old) {
            json.put("recall_handle", null);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
        return json;
    }

    static Map<String, Object> received(MessageExt message) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("topic", message.getTopic());
        json.put("broker", message.getBrokerName());
        json.put("queue_id", message.getQueueId());
        json.put("queue_offset", message.getQueueOffset());
        json.put("physical_offset", message.getCommitLogOffset());
        json.put("msg_id", message.getMsgId());
        json.put(
                "offset_msg_id",
                message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null);
        json.put("flag", message.getFlag());
        json.put("tags", message.getTags());
        json.put("keys", message.getKeys());
        json.put("properties", new TreeMap<>(message.getProperties()));
        json.put("body_sha256", sha256(message.getBody()));
        json.put("body_bytes", message.getBody().length);
        json.put("sys_flag", message.getSysFlag());
        json.put("transaction_id", message.getTransactionId());
        json.put("prepared_offset", message.getPreparedTransactionOffset());
        json.put("store_bytes", message.getStoreSize());
        json.put("born_at_ms", message.getBornTimestamp());
        json.put("store_at_ms", message.getStoreTimestamp());
        json.put("born_host", String.valueOf(message.getBornHost()));
        json.put("store_host", String.valueOf(message.getStoreHost()));
        json.put("reconsume_times", message.getReconsumeTimes());
        json.put("at_ms", System.currentTimeMillis());
        return json;
    }

    static List<Object> received(Iterable<MessageExt> messages) {
        List<Object> list = new ArrayList<>();
        for (MessageExt message : messages) {
            list.add(received(message));
        }
        return list;
    }

    /** {"topic", "broker", "queue_id"} as a queue. */
    static MessageQueue queue(JsonObject json) {
        return new MessageQueue(
                json.get("topic").getAsString(), json.get("broker").getAsString(), json.get("queue_id").getAsInt());
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("topic", queue.getTopic());
        json.put("broker", queue.getBrokerName());
        json.put("queue_id", queue.getQueueId());
        return json;
    }

    static List<Object> queues(Iterable<MessageQueue> queues) {
        List<Object> list = new ArrayList<>();
        for (MessageQueue queue : queues) {
            list.add(queue(queue));
        }
        return list;
    }

    static String sha256(byte[] bytes) {
        try {
            StringBuilder hex = new StringBuilder(64);
            for (byte b : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                hex.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
