package clients;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin as it is, one command after the other in this process: {"do":"mqadmin","arguments":["topicList","-n",...]} is
 * answered with all it printed. A command whose arguments it cannot read would end the process, as it ends mqadmin's.
 */
final class Mqadmin {
    private Mqadmin() {}

    static void register(Map<String, Agent.Command> commands) {
        commands.put("mqadmin", args -> {
            List<String> arguments = new ArrayList<>();
            args.list("arguments").forEach(argument -> arguments.add(argument.getAsString()));
            return Map.of("printed", run(arguments, Credentials.hook(args)));
        });
    }

    /** 4.9 does not begin without this file; where it lies is read once. */
    private static void makeHome() throws IOException {
        Path conf = Files.createDirectories(Path.of("home", "conf"));
        Files.writeString(conf.resolve("logback_tools.xml"), "<configuration/>");
        System.setProperty("rocketmq.home.dir", conf.getParent().toAbsolutePath().toString());
    }

    private static synchronized String run(List<String> arguments, RPCHook hook) throws InterruptedException, IOException {
        makeHome();
        PrintStream standardOut = System.out;
        PrintStream standardErr = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Thread caller = Thread.currentThread();
        Thread hurry = new Thread(() -> hurry(caller), "hurry");
        hurry.start();
        try {
            MQAdminStartup.main0(arguments.toArray(new String[0]), hook);
        } finally {
            hurry.interrupt();
            hurry.join();
            System.setOut(standardOut);
            System.setErr(standardErr);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** A 5.x client that ends joins a thread which sleeps for 3 s at a time, and mostly forgets to wake it. */
    private static void hurry(Thread caller) {
        while (true) {
            try {
                Thread.sleep(30);
            } catch (InterruptedException over) {
                return;
            }
            for (StackTraceElement frame : caller.getStackTrace()) {
                if (frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith(".ServiceThread")) {
                    Thread[] threads = new Thread[2 * Thread.activeCount()];
                    for (int i = Thread.enumerate(threads) - 1; i >= 0; i--) {
                        if (threads[i].getName().equals("NettyEventExecutor")) {
                            threads[i].interrupt();
                        }
                    }
                }
            }
        }
    }
}
