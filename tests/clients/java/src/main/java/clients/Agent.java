package clients;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * The official Java client under remote control: one JSON command a line on stdin, one JSON answer or event a line on
 * stdout. {"id":1,"do":"producer.start","name":"p",...} is answered by {"id":1,"ok":{...}} or {"id":1,"error":{...}};
 * what consumers receive comes unasked as {"event":"message","of":"c",...}. Every command runs in a thread of its own.
 * Ends when stdin ends.
 */
public final class Agent {
    /** A command: reads its arguments, returns what to answer (null for nothing). */
    interface Command {
        Object run(Args args) throws Throwable;
    }

    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    private static PrintStream out;
    private static final Map<String, Command> COMMANDS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not mix with the answers
        Producers.register(COMMANDS);
        PushConsumers.register(COMMANDS);
        PullConsumers.register(COMMANDS);
        LiteConsumers.register(COMMANDS);
        Admin.register(COMMANDS);
        RequestReply.register(COMMANDS);
        Recalls.register(COMMANDS);
        Load.register(COMMANDS);
        Mqadmin.register(COMMANDS);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject json = JsonParser.parseString(line).getAsJsonObject();
            Thread thread = new Thread(() -> answer(json), "command-" + json.get("id"));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0); // clients that were not stopped keep threads alive
    }

    private static void answer(JsonObject json) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", json.get("id").getAsLong());
        try {
            Command command = COMMANDS.get(json.get("do").getAsString());
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + json.get("do"));
            }
            Object result = command.run(new Args(json));
            line.put("ok", result == null ? Map.of() : result);
        } catch (Throwable problem) {
            line.put("error", describe(problem));
        }
        print(line);
    }

    /** Type, response code (null when the failure carries none), message and stack of a failure. */
    static Map<String, Object> describe(Throwable problem) {
        Map<String, Object> error = new LinkedHashMap<>();
        Integer code = null;
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                code = ((MQBrokerException) cause).getResponseCode(); // however the client wrapped it
            } else if (cause instanceof MQClientException && code == null) {
                code = ((MQClientException) cause).getResponseCode();
            }
        }
        StringWriter stack = new StringWriter();
        problem.printStackTrace(new PrintWriter(stack));
        error.put("type", problem.getClass().getSimpleName());
        error.put("code", code);
        error.put("message", String.valueOf(problem.getMessage()));
        error.put("stack", stack.toString());
        return error;
    }

    static void event(String name, String of, Map<String, Object> content) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", name);
        line.put("of", of);
        line.putAll(content);
        print(line);
    }

    private static void print(Map<String, Object> line) {
        String text = GSON.toJson(line);
        synchronized (out) {
            out.print(text);
            out.print('\n');
            out.flush();
        }
    }
}
