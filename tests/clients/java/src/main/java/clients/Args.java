package clients;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.rocketmq.client.ClientConfig;

/** The arguments of one command, with defaults. */
final class Args {
    private final JsonObject json;

    Args(JsonObject json) {
        this.json = json;
    }

    boolean has(String key) {
        return json.has(key) && !json.get(key).isJsonNull();
    }

    String text(String key) {
        if (!has(key)) {
            throw new IllegalArgumentException("argument missing: " + key);
        }
        return json.get(key).getAsString();
    }

    String text(String key, String otherwise) {
        return has(key) ? json.get(key).getAsString() : otherwise;
    }

    long number(String key) {
        text(key);
        return json.get(key).getAsLong();
    }

    long number(String key, long otherwise) {
        return has(key) ? json.get(key).getAsLong() : otherwise;
    }

    boolean flag(String key) {
        return has(key) && json.get(key).getAsBoolean();
    }

    JsonArray list(String key) {
        return has(key) ? json.getAsJsonArray(key) : new JsonArray();
    }

    JsonObject object(String key) {
        return has(key) ? json.getAsJsonObject(key) : new JsonObject();
    }

    JsonElement any(String key) {
        return json.get(key);
    }

    /** Gives a client the name server. After 3 s, its default, a client that a busy machine starves closes the
     * connection there, and all that was asked on it fails. */
    void connect(ClientConfig client) {
        client.setNamesrvAddr(text("namesrv"));
        client.setMqClientApiTimeout(30_000);
    }
}
