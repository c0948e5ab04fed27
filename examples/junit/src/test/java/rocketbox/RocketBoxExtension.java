package rocketbox;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A real broker and name server for the tests of a class, in a third of a second:
 *
 * <pre>{@code @RegisterExtension static RocketBoxExtension box = new RocketBoxExtension();}</pre>
 *
 * It is `rocketbox serve --test`, with ports and a directory of its own; the variable ROCKETBOX names another command. It
 * ends with its standard input, so with this process, however that ends.
 */
public final class RocketBoxExtension implements BeforeAllCallback, AfterAllCallback {
    private static final Pattern NAME_SERVER = Pattern.compile("\"namesrv\": ?\"([^\"]+)\"");

    private Process server;
    private String nameServer;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        String command = System.getenv().getOrDefault("ROCKETBOX", "rocketbox");
        server = new ProcessBuilder(command, "serve", "--test").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        InputStreamReader out = new InputStreamReader(server.getInputStream(), StandardCharsets.UTF_8);
        String ready = new BufferedReader(out).readLine();
        Matcher found = NAME_SERVER.matcher(ready == null ? "" : ready);
        if (!found.find()) {
            throw new IOException(command + " serve --test did not start: " + ready);
        }
        nameServer = found.group(1);
    }

    /** For setNamesrvAddr. */
    public String nameServer() {
        return nameServer;
    }

    /**
     * Waits until the group has consumed all that the topic holds. Clients commit every 5 s, and when they end. The topic
     * is named, since a group that has committed nothing yet is behind in none.
     */
    public void awaitIdle(String group, String topic, Duration most) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.setMqClientApiTimeout(30_000);
        admin.setInstanceName("await-idle-" + group);
        admin.start();
        try {
            long until = System.nanoTime() + most.toNanos();
            long behind;
            while ((behind = admin.examineConsumeStats(group, topic).computeTotalDiff()) > 0) {
                if (System.nanoTime() > until) {
                    throw new AssertionError("group " + group + " is " + behind + " messages behind");
                }
                TimeUnit.MILLISECONDS.sleep(50);
            }
        } finally {
            admin.shutdown();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
        server.getOutputStream().close();
        if (!server.waitFor(30, TimeUnit.SECONDS)) {
            server.destroyForcibly();
        }
    }
}
